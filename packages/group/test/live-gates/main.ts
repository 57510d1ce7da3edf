// `npm run live-gates [-- [--short] [--out FILE] GATE …]`: runs the live gates of the failure detector with real
// processes, in their long form without `--short`. Without a name it runs all. It exits with 1 where a gate does not
// hold. `--json` prints the figures of one gate as they are, for another process of this program.
import { writeFileSync } from "node:fs";
import { availableParallelism, loadavg } from "node:os";
import { parseArgs } from "node:util";
import { type Figure, holds } from "../gates/figure.ts";
import { tableHead, tableRow, verdict } from "../gates/table.ts";
import { type LiveGate, liveGates } from "./gates.ts";
import { lackOf, ownNetwork, runThere } from "./place.ts";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { short: { type: "boolean" }, json: { type: "boolean" }, out: { type: "string" } },
});
const isShort = values.short === true;
const unknown = positionals.find((id) => !liveGates.some((gate) => gate.id === id));
if (unknown !== undefined) {
  console.error(
    `live-gates: unknown gate "${unknown}"; known are ${liveGates.map(({ id }) => id).join(", ")}`,
  );
  process.exit(2);
}
const wanted = liveGates.filter(({ id }) => positionals.length === 0 || positionals.includes(id));

if (values.json === true) {
  const figures = await Promise.all(wanted.map(run));
  console.log(JSON.stringify(figures.flat()));
} else await runAll();

async function runAll(): Promise<void> {
  const rows: string[] = [];
  const skipped: string[] = [];
  let failed = 0;
  for (const gate of wanted) {
    const name = `${gate.id} ${gate.what}`;
    const lack = lackOf(gate.place);
    if (lack !== undefined) {
      console.error(`${gate.id} IS SKIPPED: ${lack}\n`);
      skipped.push(`- ${gate.id} was skipped: ${lack}.`);
      continue;
    }
    const figures = await run(gate).catch((error: unknown): Figure[] => {
      console.error(error);
      return [{ run: "did not come to its end", name: "runs", value: 0, min: 1 }];
    });
    failed += figures.filter((figure) => !holds(figure)).length;
    const shown = figures.map((figure) => tableRow(name, figure));
    const load = loadavg()[0] ?? Number.NaN;
    console.log(`${shown.join("\n")}\n${gate.id}: the load was ${load.toFixed(1)} at its end\n`);
    rows.push(...shown, tableRow(name, { run: "this machine", name: "load at the end", value: load }));
  }
  if (values.out !== undefined) writeFileSync(values.out, page(rows, skipped, failed));
  process.exitCode = failed === 0 ? 0 : 1;
}

async function run(gate: LiveGate): Promise<Figure[]> {
  if (gate.place !== "host" && process.env[ownNetwork] !== "1") return runThere(gate.place, gate.id, isShort);
  return isShort ? gate.short() : gate.long();
}

function page(lines: readonly string[], skipped: readonly string[], missed: number): string {
  const form = [isShort ? " --short" : "", ...positionals.map((id) => ` ${id}`)].join("");
  return `# The failure detector and groups, live

\`node build/packages/group/test/live-gates/main.js${form && ` --${form}`}\` on ${new Date().toISOString().slice(0, 10)}, Node ${process.version}, ${availableParallelism()} processors:
**${verdict(missed)}.**

Written by that command. T is the period of the detectors. Every member is a process with a detector over UDP. Members
share the machine with the program that measures, and with other work: the load is the average of the last minute.
${skipped.map((line) => `\n${line}`).join("")}${skipped.length > 0 ? "\n" : ""}
${tableHead}
${lines.join("\n")}
`;
}
