"""Paths of the coordinator's tree, split and checked in one place."""

ROOT = "/"


def split(path: str) -> tuple[str, str]:
    """The parent of `path` and its own name; the root is nobody's child and is not asked for."""
    assert is_well_formed(path)
    assert path != ROOT
    parent, _, name = path.rpartition("/")
    return parent or ROOT, name


def is_well_formed(path: str) -> bool:
    return path == ROOT or (path.startswith("/") and not path.endswith("/") and "//" not in path)


def ancestors(path: str) -> list[str]:
    """Every node above `path` but the root, outermost first."""
    parts = path.split("/")[1:-1]
    return ["/" + "/".join(parts[: depth + 1]) for depth in range(len(parts))]


def join(parent: str, name: str) -> str:
    return f"/{name}" if parent == ROOT else f"{parent}/{name}"
