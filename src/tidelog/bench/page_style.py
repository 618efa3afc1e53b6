"""How the report looks: by day and by night, on a wide screen and on a telephone."""

from typing import Final

STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5f6b7a; --line: #e3e7ec; --page: #f5f7f9;
  --card: #fff; --good: #0f7b4f; --good-back: #e5f5ed; --bad: #b3261e; --bad-back: #fdecea;
  --open: #8a5a00; --open-back: #fdf3dc; --s0: #8c96a3; --s1: #2a78d6; --s2: #e0662f;
  --isr0: #c62828; --isr1: #f0a63a; --isr2: #b9d4f2; --isr3: #76a9e3; --isr4: #2a6cbd; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --soft: #98a3b1; --line: #2c343f;
  --page: #12161c; --card: #1a2028; --good: #5fd3a0; --good-back: #11301f; --bad: #ff8a80;
  --bad-back: #3a1714; --open: #e8c06a; --open-back: #33280e; --s0: #7d8896; --s1: #4d94ea;
  --s2: #e5763f; --isr0: #e05252; --isr1: #c98a2b; --isr2: #2c5079; --isr3: #3f74ad;
  --isr4: #6badf5; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 32px 20px 64px; }
header p, footer, .note { color: var(--soft); }
h1 { font-size: 24px; margin: 0; letter-spacing: -.01em; }
h2 { font-size: 19px; margin: 48px 0 6px; padding-top: 12px; border-top: 1px solid var(--line); }
h3 { font-size: 15px; margin: 22px 0 8px; }
p { margin: 6px 0 12px; max-width: 78ch; }
a { color: var(--s1); }
nav { display: flex; flex-wrap: wrap; gap: 6px 16px; margin: 14px 0 0; font-size: 14px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(230px, 1fr)); gap: 12px;
  margin: 16px 0 0; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 12px 14px; }
.tile b { display: block; font-size: 20px; font-variant-numeric: tabular-nums; line-height: 1.3; }
.tile span { color: var(--soft); font-size: 13px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 14px 16px; margin: 10px 0; overflow-x: auto; }
.card.warn { background: var(--open-back); color: var(--open); border-color: transparent; }
figure { margin: 0; } figcaption { font-weight: 600; font-size: 14px; margin: 0 0 6px; }
.scroll { overflow-x: auto; background: var(--card); border: 1px solid var(--line);
  border-radius: 10px; margin: 10px 0; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; }
th, td { padding: 7px 11px; text-align: left; border-bottom: 1px solid var(--line);
  white-space: nowrap; vertical-align: top; }
tr:last-child td { border-bottom: 0; }
th { color: var(--soft); font-weight: 500; font-size: 12px; vertical-align: bottom;
  white-space: normal; min-width: 62px; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
td.wide { white-space: normal; min-width: 230px; }
td.ours { background: color-mix(in srgb, var(--s1) 9%, transparent); font-weight: 600; }
tr.document td { color: var(--soft); }
tr.above td { border-bottom: 0; } tr.above + tr td { padding-top: 0; color: var(--soft); }
details { margin: 10px 0; } summary { cursor: pointer; color: var(--soft); font-size: 14px; }
.claim { margin: 0; padding: 12px 0; border-bottom: 1px solid var(--line); }
.claim:last-child { border-bottom: 0; }
.claim > q { font-weight: 600; quotes: none; }
.claim > small { color: var(--soft); margin-right: 8px; font-variant-numeric: tabular-nums; }
.claim div { margin-top: 5px; font-size: 14px; display: grid; gap: 2px 10px;
  grid-template-columns: minmax(64px, max-content) max-content minmax(220px, 1fr); }
.claim .why { color: var(--soft); }
@media (max-width: 700px) { .claim div { grid-template-columns: max-content 1fr; }
  .claim .why { grid-column: 1 / -1; margin-bottom: 6px; } }
.badge { border-radius: 20px; padding: 1px 10px; font-size: 12.5px; font-weight: 600;
  align-self: start; justify-self: start; white-space: nowrap; }
.badge.good { background: var(--good-back); color: var(--good); }
.badge.bad { background: var(--bad-back); color: var(--bad); }
.badge.open { background: var(--open-back); color: var(--open); }
code, pre { font: 13px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
code { word-break: break-word; } pre { margin: 0; white-space: pre-wrap; word-break: break-word; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 4px 16px; margin: 0;
  font-size: 14px; } dt { color: var(--soft); } dd { margin: 0; }
svg { width: 100%; height: auto; display: block; }
svg text { font-size: 12px; fill: var(--ink); } svg text.soft { fill: var(--soft); }
svg text.value { font-variant-numeric: tabular-nums; font-size: 11.5px; }
svg text.moment-text { fill: var(--bad); font-size: 11.5px; }
svg .s0 { fill: var(--s0); } svg .s1 { fill: var(--s1); } svg .s2 { fill: var(--s2); }
svg .curve { fill: none; stroke-width: 2; stroke-linejoin: round; }
svg .s1.curve { stroke: var(--s1); } svg .s2.curve { stroke: var(--s2); }
svg .dashed { stroke-dasharray: 6 4; }
svg circle { stroke: var(--card); stroke-width: 2; }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .spread { stroke: var(--ink); stroke-width: 1.5; opacity: .75; }
svg .moment { stroke: var(--bad); stroke-width: 1; stroke-dasharray: 3 3; }
svg .isr0 { fill: var(--isr0); } svg .isr1 { fill: var(--isr1); } svg .isr2 { fill: var(--isr2); }
svg .isr3 { fill: var(--isr3); } svg .isr4 { fill: var(--isr4); }
footer { margin-top: 48px; font-size: 13px; }
""".strip()
