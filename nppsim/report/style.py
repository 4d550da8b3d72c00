"""The look of the report: one style sheet for light and dark pages."""

CSS = """
:root { color-scheme: light dark; --ground: #f6f6f8; --card: #fff; --ink: #22242c; --muted: #747785; --line: #e3e4ea;
  --accent: #3b7dd8; --good: #2f8f5f; --bad: #b83840; }
@media (prefers-color-scheme: dark) { :root { --ground: #17181d; --card: #1f2128; --ink: #e8e9ee; --muted: #9497a5;
  --line: #32343e; --accent: #6ba1ec; --good: #54b985; --bad: #e0707a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI",
  Roboto, "Helvetica Neue", sans-serif; font-variant-numeric: tabular-nums; }
header, main { max-width: 1200px; margin: 0 auto; padding: 0 24px; }
header { padding-top: 40px; }
h1 { margin: 0; font-size: 30px; letter-spacing: -.02em; }
h2 { margin: 0 0 14px; font-size: 19px; letter-spacing: -.01em; }
h3 { margin: 18px 0 8px; font-size: 15px; }
h4 { margin: 16px 0 6px; font-size: 13px; color: var(--muted); font-weight: 600; }
section > div:first-of-type h3, section > h3:first-of-type { margin-top: 0; }
.verdict { margin: 12px 0 0; padding: 12px 16px; background: var(--card); border: 1px solid var(--line);
  border-left: 4px solid var(--accent); border-radius: 8px; font-size: 16px; }
nav { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 18px 0 4px; font-size: 13.5px; }
a { color: var(--accent); text-decoration: none; } a:hover { text-decoration: underline; }
section { margin: 18px 0; padding: 20px 24px 22px; background: var(--card); border: 1px solid var(--line);
  border-radius: 12px; }
.muted { color: var(--muted); font-weight: 400; } p.muted { margin: 8px 0 0; font-size: 13px; }
.missing { color: var(--muted); font-style: italic; } p.missing { margin: 4px 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13.5px; }
th, td { padding: 6px 18px 6px 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
thead th { color: var(--muted); font-weight: 600; font-size: 12.5px; white-space: nowrap; }
tbody th { font-weight: 500; white-space: nowrap; }
tbody tr:last-child > * { border-bottom: 0; }
td > .wide > table { font-size: 12.5px; }
.results { width: 100%; } .results td { min-width: 142px; }
.results small { font-size: 11.5px; line-height: 1.3; display: block; }
.results tr.total > * { border-top: 2px solid var(--line); padding-top: 10px; }
.bar { position: relative; height: 6px; margin: 5px 0 3px; border-radius: 3px; background: var(--line);
  overflow: hidden; }
.bar i, .bar u { position: absolute; top: 0; bottom: 0; left: 0; background: var(--accent); }
.bar u { background: var(--ink); opacity: .35; top: 2px; bottom: 2px; }
.plots { display: flex; flex-wrap: wrap; gap: 16px 20px; align-items: center; margin: 12px 0; }
.plot { width: 348px; max-width: 100%; height: auto; display: block; }
.beside { display: flex; flex-wrap: wrap; gap: 12px 40px; }
.beside > div { flex: 1 1 440px; min-width: 0; max-width: 100%; }
.stack { display: flex; height: 18px; border-radius: 5px; overflow: hidden; margin: 12px 0 6px;
  background: var(--line); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 0; font-size: 13px; }
.legend i { display: inline-block; width: 10px; height: 10px; margin-right: 6px; border-radius: 2px; }
.films { display: flex; flex-wrap: wrap; gap: 14px; align-items: flex-start; }
figure { margin: 0; font-size: 12.5px; width: 345px; max-width: 100%; }
figure video, figure img { width: 100%; display: block; border-radius: 8px; background: #1f2027; margin-bottom: 4px; }
figcaption { display: inline; color: var(--muted); overflow-wrap: anywhere; }
.won { color: var(--good); } .lost { color: var(--bad); }
pre { overflow-x: auto; margin: 0; padding: 12px 14px; background: var(--ground); border-radius: 8px;
  font: 12px/1.45 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
details { margin-top: 8px; } summary { cursor: pointer; color: var(--accent); font-size: 13px; }
"""
