// `npm run simulate [-- [--short] GATE …]`: runs the gates of the failure detector, in their long form without
// `--short`. Without a name it runs all and writes build/reports/group-detector.md. It exits with 1 where a gate does
// not hold.
import { mkdirSync, writeFileSync } from "node:fs";
import { availableParallelism, loadavg } from "node:os";
import { fileURLToPath } from "node:url";
import { holds } from "../gates/figure.ts";
import { tableHead, tableRow, verdict } from "../gates/table.ts";
import { gates } from "./gates.ts";

const isShort = process.argv.includes("--short");
const wanted = process.argv.slice(2).filter((argument) => argument !== "--short");
const unknown = wanted.find((id) => !gates.some((gate) => gate.id === id));
if (unknown !== undefined) {
  console.error(`simulate: unknown gate "${unknown}"; known are ${gates.map(({ id }) => id).join(", ")}`);
  process.exit(2);
}

const rows: string[] = [];
let failed = 0;
for (const { id, what, short, long } of gates.filter(
  (gate) => wanted.length === 0 || wanted.includes(gate.id),
)) {
  const before = process.cpuUsage();
  const figures = isShort ? short() : long();
  const { user, system } = process.cpuUsage(before);
  failed += figures.filter((figure) => !holds(figure)).length;
  const shown = figures.map((figure) => tableRow(`${id} ${what}`, figure));
  console.log(`${shown.join("\n")}\n${id}: ${((user + system) / 1e6).toFixed(1)} s of processor time\n`);
  rows.push(...shown);
}
if (wanted.length === 0) writeFileSync(resultsFile(), page(rows, failed));
process.exitCode = failed === 0 ? 0 : 1;

function page(lines: readonly string[], missed: number): string {
  return `# The failure detector in simulation

\`npm run simulate${isShort ? " -- --short" : ""}\` on ${new Date().toISOString().slice(0, 10)}, Node ${process.version}: **${verdict(missed)}.**

Written by that command. Times are in periods of the detector. Seeds are fixed, so all figures but those of S11 come out
the same on every machine. The load of this machine was ${loadavg()[0]?.toFixed(1)} on ${availableParallelism()} processors, which S11 takes along.

${tableHead}
${lines.join("\n")}
`;
}

function resultsFile(): string {
  const folder = new URL("../../../../reports/", import.meta.url);
  mkdirSync(folder, { recursive: true });
  return fileURLToPath(new URL("group-detector.md", folder));
}
