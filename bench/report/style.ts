import { Markup } from "./markup.ts";

/** Twelve colours that are told apart on white and on black, with their lighter forms for the dark. */
const light = [
  "#3b6fb6",
  "#d97b29",
  "#3d9a50",
  "#8a5cc2",
  "#8c6d4f",
  "#c75fa5",
  "#4c9aa8",
  "#a3a02a",
  "#5a5fcf",
  "#d04a6e",
  "#6f7f8f",
  "#2f7f6f",
];
const dark = [
  "#7fa8e6",
  "#f0a25c",
  "#74c985",
  "#b795e8",
  "#c2a284",
  "#e99ccd",
  "#84cbd8",
  "#d3d068",
  "#9a9ef2",
  "#f08aa5",
  "#a9b8c7",
  "#73c3b1",
];

const palette = (colors: readonly string[]) => colors.map((color, index) => `--c${index}:${color};`).join("");

/** All of the page's looks; it asks for nothing from any network. */
export const style = new Markup(`
:root{color-scheme:light dark;--page:#fff;--text:#1c1c1e;--faint:#6b6b70;--line:#dcdce0;--ours:#c8342b;${palette(light)}}
@media (prefers-color-scheme:dark){:root{--page:#161618;--text:#ececee;--faint:#a0a0a6;--line:#37373c;--ours:#f0645a;${palette(dark)}}}
body{background:var(--page);color:var(--text);font:15px/1.5 system-ui,sans-serif;max-width:980px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem}h2{font-size:1.3rem;margin-top:3rem;border-bottom:1px solid var(--line)}h3{font-size:1rem;margin:2rem 0 .3rem}
p.about,dd,figcaption{color:var(--faint)}dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1rem}dd{margin:0}
code{font:13px ui-monospace,monospace}
table{border-collapse:collapse;font-size:13px;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:.15rem .6rem;border-bottom:1px solid var(--line)}th:first-child,td:first-child{text-align:left}
svg{width:100%;height:auto;font:12px system-ui,sans-serif}
text{fill:var(--text)}.tick,.label{fill:var(--faint)}.inside{fill:var(--page);font-size:11px;pointer-events:none}
.grid{stroke:var(--line)}.whisker{stroke:var(--text);fill:none}
.bar{fill:currentColor}.line{stroke:currentColor;stroke-width:1.8;fill:none}circle{fill:currentColor}.ours .line{stroke-width:2.6}.d1>.line{stroke-dasharray:7 4}.d2>.line{stroke-dasharray:2 3}.d3>.line{stroke-dasharray:9 3 2 3}
.ours{color:var(--ours)}${light.map((_, index) => `.c${index}{color:var(--c${index})}`).join("")}
.legend span{display:inline-block;margin-right:1.2rem;font-size:13px}.legend span::before{content:"";display:inline-block;width:1.4em;margin-right:.4em;vertical-align:.25em;border-top:3px solid}.legend .d1::before,.legend .d3::before{border-top-style:dashed}.legend .d2::before{border-top-style:dotted}
details{margin:.5rem 0}summary{cursor:pointer;color:var(--faint);font-size:13px}
`);
