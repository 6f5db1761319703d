"""The style sheet of a report's page: light and dark, from a phone's width up."""

from __future__ import annotations

# The six series: distinct for the colour-blind too, and each with its own dashes.
_LIGHT = ("#0062a8", "#c44e00", "#00805c", "#a8388a", "#7a5c00", "#505a66")
_DARK = ("#5cb3f0", "#ff9d4d", "#3fcf9f", "#ec8fd0", "#e0c04a", "#b0bac6")
_DASHES = ("none", "7 4", "2 3", "9 3 2 3", "12 4", "4 4")


def _series(colours: tuple[str, ...]) -> str:
    return "".join(f"--s{number}:{colour};" for number, colour in enumerate(colours))


_LINES = "".join(
    f".line.s{number}{{stroke:var(--s{number});stroke-dasharray:{dashes}}}"
    f".dot.s{number},.bar.s{number}{{fill:var(--s{number})}}"
    for number, dashes in enumerate(_DASHES)
)

CSS = f"""
:root{{color-scheme:light dark;--back:#fff;--panel:#f6f8fa;--text:#1c2128;--soft:#59636e;--edge:#d5dbe1;
--good:#006d44;--bad:#b3261e;{_series(_LIGHT)}}}
@media (prefers-color-scheme:dark){{:root{{--back:#0f1318;--panel:#181e25;--text:#e8edf2;--soft:#9aa7b4;
--edge:#303a45;--good:#53d39b;--bad:#ff8a80;{_series(_DARK)}}}}}
*{{box-sizing:border-box}}
body{{margin:0 auto;max-width:1060px;padding:24px 20px 60px;background:var(--back);color:var(--text);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}}
header{{border-bottom:1px solid var(--edge);margin-bottom:20px}}
h1{{margin:0;font-size:1.75rem;line-height:1.2}}h2{{font-size:1.1rem;margin:20px 0 8px}}
h3{{font-size:.95rem;margin:16px 0 4px}}
.kind,.when,.note,figcaption span{{color:var(--soft);font-size:.86rem}}.kind{{margin:0 0 2px}}
.subject{{margin:4px 0;font-size:1.05rem;overflow-wrap:anywhere}}.when{{margin:0 0 14px}}
.cards{{display:grid;grid-template-columns:repeat(auto-fit,minmax(128px,1fr));gap:10px;margin:0}}
.card{{background:var(--panel);border:1px solid var(--edge);border-radius:8px;padding:8px 12px}}
.card dt{{color:var(--soft);font-size:.8rem}}
.card dd{{margin:0;font-size:1.4rem;font-weight:600;font-variant-numeric:tabular-nums}}
.card.alarm{{border-color:var(--bad)}}.card.alarm dd{{color:var(--bad)}}
.plots{{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,400px),1fr));gap:16px;margin-top:22px}}
figure{{margin:0;background:var(--panel);border:1px solid var(--edge);border-radius:8px;padding:12px 12px 8px;
min-width:0;display:flex;flex-direction:column}}
figcaption b,figcaption span{{display:block}}
figcaption{{flex:1;margin-bottom:8px}}figure>svg{{display:block;width:100%;height:auto}}
svg text{{fill:var(--soft);font-size:12px;font-variant-numeric:tabular-nums}}
.tick-y{{text-anchor:end}}.tick-x,.axis-name{{text-anchor:middle}}
.bar-name,.bar-value{{fill:var(--text)!important;font-size:13px!important}}.bar-value.best{{font-weight:700}}
.grid{{stroke:var(--edge);stroke-width:.7}}
.line{{fill:none;stroke-width:2;stroke-linejoin:round}}{_LINES}
.whisker{{stroke:var(--text);stroke-width:1.4;fill:none}}
.limit{{stroke:var(--bad);stroke-dasharray:3 3}}.limit-name{{fill:var(--bad)!important}}
.wait{{stroke:var(--soft);stroke-width:1;opacity:.7}}.answer{{stroke:var(--s0)}}.wait.bad,.answer.bad{{stroke:var(--bad)}}
.failure{{fill:var(--bad)}}
.legend{{list-style:none;display:flex;flex-wrap:wrap;gap:2px 16px;margin:4px 0;padding:0;font-size:.84rem}}
.legend svg{{width:26px;height:8px;margin-right:6px}}
.scroll{{overflow-x:auto;margin-top:20px}}
table{{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums;min-width:60%}}
caption{{text-align:left;font-weight:600;padding-bottom:4px}}
th,td{{padding:4px 12px 4px 0;border-bottom:1px solid var(--edge);white-space:nowrap}}
thead th{{color:var(--soft);font-weight:500}}tbody th{{font-weight:500}}
.text{{text-align:left}}.number{{text-align:right;padding-left:12px}}
.strong{{font-weight:650}}.good{{color:var(--good);font-weight:600}}.bad{{color:var(--bad);font-weight:600}}
p.note{{margin:6px 0}}
p.note.strong{{color:var(--text)}}p.note.good{{color:var(--good)}}p.note.bad{{color:var(--bad)}}
pre{{background:var(--panel);border:1px solid var(--edge);border-radius:8px;padding:10px 12px;
overflow-x:auto}}
.pairs{{margin:0;font-size:.86rem}}.pairs div{{display:flex;gap:10px}}.pairs dt{{color:var(--soft);
flex:0 0 11em}}
.pairs dd{{margin:0;overflow-wrap:anywhere}}summary{{cursor:pointer}}
@media print{{figure,.scroll{{break-inside:avoid}}}}
"""
