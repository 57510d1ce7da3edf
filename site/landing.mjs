// The first page of the site: what Cinnabar is, three numbers, a program, three doors, and a picture of the parts. All
// words that could grow old come from README.md.

/** Where a reader goes on, by what he came for. */
const doors = [
  {
    title: "Services",
    text: "Typed calls and streams between services of one host or cluster, with deadlines, retries and balancing.",
    links: [
      ["First service", "docs/guide/first-service.md"],
      ["Deploy", "docs/guide/deploy.md"],
      ["Coming from gRPC, tRPC, NestJS", "docs/guide/coming-from.md"],
    ],
  },
  {
    title: "HPC",
    text: "Memory of other processes read and written in place, RDMA devices, groups with collectives.",
    links: [
      ["Large data", "docs/guide/large-data.md"],
      ["RDMA", "docs/guide/rdma.md"],
      ["Groups", "docs/guide/groups.md"],
    ],
  },
  {
    title: "Storage",
    text: "Block devices in TypeScript that Linux, QEMU and libnbd mount, over NBD, NVMe/TCP and NVMe/RDMA.",
    links: [
      ["Disks", "docs/guide/disks.md"],
      ["Devices and promises", "docs/guide/disks-reference.md"],
      ["Results", "docs/results/disks.md"],
    ],
  },
];

/** @param {string} readme */
export function landingPage(readme) {
  const [, sentence = ""] = /^# Cinnabar\n\n([\s\S]*?)\n\n/.exec(readme) ?? [];
  const figures = readme.slice(readme.indexOf("<!-- figures"), readme.indexOf("<!-- end of figures -->"));
  const rows = [...figures.matchAll(/^\| (.+?), ([^,|]+) \| \*\*(.+?)\*\* \| (.+?) \| (.+?) \|$/gm)];
  const machine = /^Medians\..*$/m.exec(figures)?.[0] ?? "";
  const program = /^```ts\n\/\/ hello\.ts[\s\S]*?^```$/m.exec(readme)?.[0];
  const printed = /^<!-- prints: hello\.ts -->\n(```text\n[\s\S]*?^```)$/m.exec(readme)?.[1];
  if (sentence === "" || rows.length !== 3 || program === undefined || printed === undefined)
    throw new Error("README.md has not what the landing page shows: a sentence, three figures, a program");
  const cards = rows.map(
    ([, what, unit, ours, net, grpc]) =>
      `<div class="card"><strong>${ours}</strong> <span>${unit}</span><p>${what}</p><p class="beside">node:net ${net}, grpc-js ${grpc}</p></div>`,
  );
  const entries = doors.map(
    ({ title, text, links }) =>
      `<div class="card">\n\n### ${title}\n\n${text}\n\n${links.map(([name, to]) => `- [${name}](${to})`).join("\n")}\n\n</div>`,
  );
  return `---
title: Cinnabar
titleTemplate: RPC for TypeScript
sidebar: false
aside: false
pageClass: landing
---

# Cinnabar

${sentence}

[Begin](docs/guide/first-service.md) · [Is it for me?](README.md#take-it-when) · [Guide](docs/guide/index.md)

<div class="cards numbers">
${cards.join("\n")}
</div>

${machine} [All figures, and where it loses](docs/guide/benchmarks.md).

## A program

${program.replace("// hello.ts\n", "")}

${printed}

## Where to go on

<div class="cards">

${entries.join("\n\n")}

</div>

## The parts

${parts}

[Architecture](docs/architecture.md) has the whole.
`;
}

/** Boxes from the program down to the wire. */
const rows = [
  [["your services and their contract", ""]],
  [
    ["client: deadline, retry, balancing", "own"],
    ["server: admission, replay, health", "own"],
  ],
  [
    ["session: calls, streams, credits, liveness, seals", "own"],
    ["memory: regions, grants", "own"],
  ],
  [
    ["mem, net<br>in TypeScript", ""],
    ["shm; tcp, verbs and others by libfabric<br>in the native addon", ""],
  ],
];
const parts = `<div class="parts">\n${rows
  .map((row) => `<div>${row.map(([text, kind]) => `<span class="${kind}">${text}</span>`).join("")}</div>`)
  .join("\n")}\n</div>`;
