import { createHash } from "node:crypto";
import { appendFileSync } from "node:fs";
import { join } from "node:path";
import { Engine, service } from "cinnabar";
import {
  type CollectiveCallOptions,
  CollectiveError,
  type CollectiveResult,
  collective,
  type Group,
  implementCollectives,
  joinGroup,
  staticAuthority,
} from "cinnabar-group";
import { z } from "zod";
import { engineCommands, obey, settings, tell } from "../../../../test/processes/programs/commands.ts";

// A member of a group that executes collectives. What it executes it writes to a file, which outlives it.
const { rank, listen, folder } = settings<{
  readonly rank: number;
  readonly listen: string;
  readonly folder: string;
}>();

const Visits = service("visits.v1", {
  visit: collective({
    input: z.object({ holds: z.boolean() }),
    output: z.array(z.number()),
    reduce: (some, others) => [...some, ...others],
  }),
  /** Each member returns its rank and what it has of the bytes. */
  spread: collective({
    input: z.object({ holds: z.boolean() }),
    output: z.array(z.object({ rank: z.number(), sum: z.string() })),
    reduce: (some, others) => [...some, ...others],
    bulk: { maxBytes: 64 << 20 },
  }),
});

let spreads = 0;
let release = (): void => undefined;

async function execute(
  { holds }: { readonly holds: boolean },
  { id }: { readonly id: string },
): Promise<void> {
  appendFileSync(join(folder, `${rank}.log`), `${id}\n`);
  if (!holds) return;
  const held = new Promise<void>((resolve) => {
    release = resolve;
  });
  tell("held");
  await held;
}

const sumOf = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");

/** Bytes that no two words of have the same. */
function fill(bytes: Uint8Array<ArrayBuffer>, seed: number): void {
  const words = new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
  for (let index = 0; index < words.length; index++) words[index] = Math.imul(index + seed, 0x9e3779b1);
}

const visits = implementCollectives(Visits, {
  async visit(input, call) {
    await execute(input, call);
    return [rank];
  },
  spread: {
    before: () => tell("spreading", { call: ++spreads }),
    async handle(input, call) {
      const sum = sumOf(call.bulk);
      await execute(input, call);
      return [{ rank, sum }];
    },
  },
});

// A machine that is busy with other processes takes none of them for lost.
const engine: Engine = await Engine.open({ listen, heartbeatMs: 20_000 });
let group: Group;

/** What a call came to, as plain data. */
const plain = ({ value, ok, failed, repaired }: CollectiveResult<unknown>) => ({
  ...{ value, ok, repaired },
  failed: [...failed].map(([each, { code, executed }]) => ({ rank: each, code, executed })),
});

/** What a call comes to, whether it succeeds or fails. */
async function outcomeOf(call: Promise<CollectiveResult<unknown>>) {
  try {
    return plain(await call);
  } catch (error) {
    if (error instanceof CollectiveError) return plain(error.result);
    throw error;
  }
}

obey({
  ...engineCommands(engine),
  async join(urls: string[][]) {
    const authority = staticAuthority(urls.map((each) => ({ urls: each })));
    group = await joinGroup("visitors", { engine, authority, rank, serve: [visits] });
  },
  async visit({ holds = false, ...options }: CollectiveCallOptions & { holds?: boolean }) {
    return outcomeOf(group.all(Visits).visit({ holds }, options));
  },
  /** Also sends the sum that all are to have. */
  async spread({
    holds = false,
    bytes,
    checksum,
    ...options
  }: CollectiveCallOptions & {
    readonly holds?: boolean;
    readonly bytes: number;
    readonly checksum?: "crc32c";
  }) {
    using memory = engine.pool.take(bytes, { access: "read" });
    fill(memory.bytes, process.pid);
    const call = group
      .all(Visits)
      .spread({ holds }, { ...options, bulk: memory.region, ...(checksum && { checksum }) });
    return { sum: sumOf(memory.bytes), ...(await outcomeOf(call)) };
  },
  release: () => release(),
  /** When it came and when it left, on the clock that all processes of a host share. */
  async barriers(rounds: number) {
    const times: { readonly cameNs: bigint; readonly leftNs: bigint }[] = [];
    for (let round = 0; round < rounds; round++) {
      const cameNs = process.hrtime.bigint();
      await group.barrier("round", { timeoutMs: 60_000 });
      times.push({ cameNs, leftNs: process.hrtime.bigint() });
    }
    return times;
  },
  allReduce: (value: string) => group.allReduce("word", value, (one, other) => one + other),
  collectiveStats: () => group.collectiveStats(),
});
tell("listening", { urls: engine.urls });
