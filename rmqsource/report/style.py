"""The style sheet of a report, readable on phones and on desks; no fonts from elsewhere."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 70rem; padding: 1rem; color: #222; background: #fff;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
  overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: .5rem 0; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem; border-top: 1px solid #ddd; padding-top: 1rem; }
p { margin: .5rem 0; }
.note { color: #555; font-size: .9rem; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .6rem;
  margin: 1rem 0; }
.facts div { background: #f4f6f8; border-radius: .4rem; padding: .6rem .8rem; }
.facts b { display: block; font-size: 1.25rem; line-height: 1.3; }
.bad { border-left: .3rem solid #d55e00; background: #fdf1e8; padding: .6rem .8rem; }
.wide { overflow-x: auto; margin: .8rem 0; }
.wide img { display: block; width: 100%; min-width: 40rem; max-width: 60rem; height: auto; }
h3 { font-size: 1rem; margin: 1.4rem 0 .2rem; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { text-align: left; padding: .25rem .9rem .25rem 0; vertical-align: top;
  border-bottom: 1px solid #eee; white-space: nowrap; }
td.long { white-space: normal; min-width: 14rem; }
th.n, td.n { text-align: right; font-variant-numeric: tabular-nums; }
nav a { margin-right: 1rem; display: inline-block; }
"""
