"""`tidelog lab`: faults in a cluster, under load or by hand, with a verdict."""

import typer

from tidelog.cli import lab_deeds, lab_exactly_once, lab_faults, lab_pipeline, lab_status
from tidelog.cli.options import Panel


def register(app: typer.Typer) -> None:
    lab = typer.Typer(no_args_is_help=True, help="Break a cluster on purpose, and see.")
    lab.command("run")(lab_faults.run)
    lab.command("faults")(lab_faults.faults)
    lab.command("exactly-once")(lab_exactly_once.run)
    lab.command("pipeline")(lab_pipeline.run)
    lab_deeds.register(lab)
    lab_status.register(lab)
    app.add_typer(lab, name="lab", rich_help_panel=Panel.LOCAL)
