"""The style sheet of a report, readable on phones and on desks, in light and in the dark."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --page: #fff; --ink: #222; --soft: #555; --line: #ddd;
  --panel: #f4f6f8; --link: #00548a; --track: #eceff1; --rest: #9a9a9a; --most: #0072b2;
  --warning: #d55e00; --good: #00664a; --look: #7a5100; --act: #a52a00; --badge: #fff; }
@media (prefers-color-scheme: dark) { :root { --page: #15181b; --ink: #e6e6e6; --soft: #b4b9be;
  --line: #3a4046; --panel: #21262a; --link: #7cc4f5; --track: #2b3136; --rest: #8b9197;
  --most: #3d9be0; --warning: #ff8440; --good: #4fd1a5; --look: #f0b840; --act: #ff8a66;
  --badge: #15181b; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 120rem; padding: 1rem clamp(.75rem, 2vw, 2rem);
  color: var(--ink); background: var(--page); overflow-wrap: anywhere;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
a { color: var(--link); }
h1 { font-size: 1.6rem; line-height: 1.2; margin: .5rem 0; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem; border-top: 1px solid var(--line);
  padding-top: 1rem; }
h3 { font-size: 1rem; line-height: 1.35; margin: 1rem 0 .4rem; }
p { margin: .4rem 0; max-width: 60rem; }
.note { color: var(--soft); font-size: .9rem; }
code { display: block; white-space: pre-wrap; font: .85rem/1.5 ui-monospace, Menlo, Consolas,
  "DejaVu Sans Mono", monospace; background: var(--panel); padding: .15rem .5rem;
  border-radius: .25rem; margin: .25rem 0; max-width: 60rem; }
.verdict { list-style: none; margin: .8rem 0; padding: 0; display: grid; gap: .6rem 1.2rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 34rem), 1fr)); }
.verdict li { border-left: .3rem solid var(--state); padding: .1rem 0 .1rem .8rem; }
.verdict h3 { margin: 0; }
.verdict b { background: var(--state); color: var(--badge); border-radius: .25rem;
  padding: .05rem .45rem; margin-right: .5rem; font-size: .85rem; text-transform: uppercase; }
.good { --state: var(--good); } .look { --state: var(--look); } .act { --state: var(--act); }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .6rem;
  margin: 1rem 0; }
.facts div { background: var(--panel); border-radius: .4rem; padding: .6rem .8rem; }
.facts b { display: block; font-size: 1.25rem; line-height: 1.3; }
.bad { border-left: .3rem solid var(--warning); background: var(--panel); margin: .4rem 0;
  padding: .4rem .8rem; }
nav a { margin-right: 1rem; display: inline-block; }
.charts { display: grid; gap: 0 2rem; align-items: start;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 33rem), 1fr)); }
figure { margin: 0; min-width: 0; }
img { display: block; width: 100%; max-width: 50rem; height: auto; }
.bars { list-style: none; margin: 0; padding: 0; font-size: .9rem; }
.bars li { display: grid; grid-template-columns: minmax(0, 15rem) minmax(3rem, 1fr) var(--value);
  gap: .1rem .7rem; align-items: center; padding: .12rem 0; }
.bar { background: var(--track); height: 1rem; }
.bar i { display: block; height: 100%; min-width: 1px; background: var(--rest); }
.bar i.most { background: var(--most); } .bar i.warning { background: var(--warning); }
.value { font-variant-numeric: tabular-nums; white-space: pre-wrap; text-align: right; }
.wide { overflow-x: auto; margin: .8rem 0; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { text-align: left; padding: .25rem 1rem .25rem 0; vertical-align: top;
  border-bottom: 1px solid var(--line); min-width: 3rem; }
td:first-child { min-width: 9rem; }
td.long { min-width: 14rem; }
th.n, td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
button, input { font: inherit; color: inherit; background: var(--panel);
  border: 1px solid var(--soft); border-radius: .25rem; padding: .15rem .5rem; }
button { cursor: pointer; }
th button { border: 0; background: none; padding: 0; font-weight: bold; text-align: inherit;
  text-decoration: underline dotted; text-underline-offset: .2rem; }
button:focus-visible, input:focus-visible, a:focus-visible { outline: 2px solid var(--link);
  outline-offset: 2px; }
th[aria-sort=ascending] button::after { content: " \\2191"; }
th[aria-sort=descending] button::after { content: " \\2193"; }
.tools { display: flex; flex-wrap: wrap; gap: .3rem 1rem; align-items: baseline;
  font-size: .9rem; }
.tools:empty { display: none; }
@media (max-width: 44rem) {
  .bars li { grid-template-columns: minmax(3rem, 1fr) var(--value); }
  .bars .label { grid-column: 1 / -1; }
  table, tbody { display: block; }
  thead { display: none; }
  .js thead { display: block; }
  thead tr { display: flex; flex-wrap: wrap; gap: .2rem .9rem; padding-bottom: .4rem; }
  th { display: block; border: 0; padding: 0; min-width: 0; }
  thead tr::before { content: "Sort by"; color: var(--soft); }
  tbody tr { display: grid; grid-template-columns: 1fr 1fr; gap: 0 1rem; padding: .5rem 0;
    border-bottom: 1px solid var(--line); }
  tbody tr[hidden] { display: none; }
  td, td.n, td.long, td:first-child { display: flex; justify-content: space-between; gap: .6rem;
    border: 0; padding: .05rem 0; min-width: 0; text-align: left; }
  td::before { content: attr(data-label); color: var(--soft); white-space: normal; }
  td:first-child { grid-column: 1 / -1; display: block; font-weight: bold; }
  td:first-child::before { content: none; }
  td.n:first-child::before { content: attr(data-label) " "; }
  td.long { grid-column: 1 / -1; }
  td:empty { display: none; }
}
@media print { .tools { display: none; } }
"""
