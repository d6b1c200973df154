"""Small pieces of HTML. Whatever comes from outside passes through `text`, so nothing is markup."""

from __future__ import annotations

import base64
import html
import io
import math
from collections.abc import Iterable, Sequence

from PIL import Image

from heisd_ros.types import ImageArray

STYLE = """
:root{--ink:#1c2430;--quiet:#5b6675;--rule:#e1e5eb;--card:#fff;--back:#f5f7fa;--blue:#0072b2;
--good:#00714f;--bad:#a83e00}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--ink);
font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1120px;margin:0 auto;padding:2.2rem 1.2rem 4rem}
h1{font-size:clamp(1.55rem,4.2vw,2.5rem);line-height:1.18;margin:.2rem 0 .7rem;
letter-spacing:-.015em;overflow-wrap:anywhere}
h2{font-size:1.32rem;margin:2.8rem 0 .5rem;letter-spacing:-.01em}
h3{font-size:1.02rem;margin:0 0 .5rem}
p{margin:.4rem 0 .8rem;max-width:86ch}
.kicker{color:var(--blue);font-weight:650;font-size:.84rem;letter-spacing:.06em;
text-transform:uppercase}
.lead{font-size:1.08rem;color:#33404f}
.quiet{color:var(--quiet);font-size:.92rem}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(46%,205px),1fr));gap:.9rem;
margin:1.4rem 0}
.tile,.card{background:var(--card);border:1px solid var(--rule);border-radius:12px}
.tile{padding:.9rem 1.05rem}
.tile b{display:block;font-size:1.75rem;line-height:1.2;letter-spacing:-.02em;
font-variant-numeric:tabular-nums}
.tile span{color:var(--quiet);font-size:.88rem;display:block}
.card{padding:1.05rem 1.15rem;margin:.9rem 0;overflow-x:auto}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,470px),1fr));gap:.9rem}
.pair .card{margin:0}
.badge{display:inline-block;padding:.1rem .6rem;border-radius:99px;font-size:.84rem;
font-weight:650;color:#fff;background:#5b6675;white-space:nowrap}
.badge.success{background:var(--good)}.badge.failure,.badge.crash{background:var(--bad)}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:.46rem .7rem;text-align:left;border-bottom:1px solid var(--rule);
vertical-align:top}
thead th{font-size:.86rem;color:var(--quiet);font-weight:600}
tbody th{font-weight:500}tr:last-child>*{border-bottom:0}
td.number,th.number{text-align:right;white-space:nowrap}
figure{margin:0}figure img{display:block;width:100%;max-width:620px;height:auto}
figcaption{color:var(--quiet);font-size:.88rem;margin-top:.45rem;max-width:80ch}
.strip{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(46%,160px),1fr));gap:.7rem}
.strip img{border-radius:8px;background:#dfe4ea;margin-bottom:.3rem}
.strip figcaption b{color:var(--ink);display:block;font-weight:600}
.ribbon{display:flex;height:14px;border-radius:4px;overflow:hidden;min-width:110px;
background:#e8ebf0}
.ribbon i{display:block;height:100%}
.swatch{display:inline-block;width:.8em;height:.8em;border-radius:3px;margin-right:.4em;
vertical-align:-.06em}
dl{margin:.2rem 0}dt{font-weight:620;margin-top:.7rem}dd{margin:.1rem 0 0;max-width:80ch}
pre{background:#1c2430;color:#e8edf4;border-radius:8px;padding:.75rem .95rem;overflow-x:auto;
font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:pre-wrap;
overflow-wrap:anywhere}
code{font:.92em ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
details{margin:.5rem 0}summary{cursor:pointer;color:var(--blue);font-weight:560}
@media(max-width:560px){main{padding:1.3rem .8rem 3rem}.card{padding:.8rem}
th,td{padding:.4rem .3rem;font-size:.86rem}.ribbon{min-width:64px}
.tile{padding:.7rem .8rem}.tile b{font-size:1.4rem}
.strip{grid-template-columns:repeat(3,1fr);gap:.5rem}}
@media print{body{background:#fff}.card,.tile{break-inside:avoid}}
""".strip()

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{title}</title>
<style>{style}</style>
</head>
<body><main>
{body}
</main></body>
</html>
"""

NO_VALUE = "\N{EN DASH}"


def page(title: str, parts: Iterable[str]) -> str:
    """Return a whole page; the title is plain text, the parts are HTML."""
    return PAGE.format(title=text(title), style=STYLE, body="\n".join(parts))


def text(value: object) -> str:
    """Return any value as text that a browser shows and never interprets."""
    return html.escape(str(value), quote=True)


def number(value: float, digits: int = 2, unit: str = "") -> str:
    """Return a figure with a fixed number of decimals, a dash when there is none."""
    if not math.isfinite(value):
        return NO_VALUE
    return f"{value:.{digits}f}{unit}"


def percent(share: float) -> str:
    """Return a share of 1 as whole percent, a dash when there is none."""
    return f"{100 * share:.0f} %" if math.isfinite(share) else NO_VALUE


def section(title: str, *parts: str, intro: str = "") -> str:
    """Return a titled section; title and intro are plain text, the parts are HTML."""
    head = f"<h2>{text(title)}</h2>" + (f"<p>{text(intro)}</p>" if intro else "")
    return f"<section>{head}{''.join(parts)}</section>"


def card(*parts: str, title: str = "") -> str:
    """Return a framed block."""
    head = f"<h3>{text(title)}</h3>" if title else ""
    return f'<div class="card">{head}{"".join(parts)}</div>'


def pair(cards: Sequence[str]) -> str:
    """Return cards side by side where the screen is wide enough, else one below the other."""
    return f'<div class="pair">{"".join(cards)}</div>'


def tile(label: str, value: str, note: str = "") -> str:
    """Return one large figure with its name and an optional remark, all plain text."""
    remark = f"<span>{text(note)}</span>" if note else ""
    return f'<div class="tile"><span>{text(label)}</span><b>{text(value)}</b>{remark}</div>'


def badge(word: str) -> str:
    """Return an outcome as a coloured word; colours are keyed by the known outcomes."""
    known = word if word in {"success", "failure", "crash"} else ""
    return f'<span class="badge {known}">{text(word)}</span>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, words: bool = False) -> str:
    """Return a table; head and cells are HTML, the first cell of a row names it.

    Args:
        head: Column titles; all empty for a table without a head.
        rows: Cells, row by row.
        words: The cells hold words, not figures: aligned to the left.
    """
    kind = "" if words else "number"
    top = "".join(
        f'<th class="{kind if place else ""}" scope="col">{cell}</th>'
        for place, cell in enumerate(head)
    )
    body = "".join(
        f'<tr><th scope="row">{first}</th>'
        + "".join(f'<td class="{kind}">{cell}</td>' for cell in rest)
        + "</tr>"
        for first, *rest in rows
    )
    above = f"<thead><tr>{top}</tr></thead>" if any(head) else ""
    return f"<table>{above}<tbody>{body}</tbody></table>"


def image(png: bytes, description: str) -> str:
    """Return a picture that travels inside the page."""
    data = base64.b64encode(png).decode("ascii")
    return f'<img alt="{text(description)}" src="data:image/png;base64,{data}">'


def figure(png: bytes, description: str, caption: str = "") -> str:
    """Return a plot with its caption; both texts are plain."""
    below = f"<figcaption>{text(caption)}</figcaption>" if caption else ""
    return f"<figure>{image(png, description)}{below}</figure>"


def png_of(pixels: ImageArray) -> bytes:
    """Return uint8 (H, W, 3) RGB as PNG bytes."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def details(summary: str, *parts: str) -> str:
    """Return a block that opens on a click."""
    return f"<details><summary>{text(summary)}</summary>{''.join(parts)}</details>"
