import type { Engine } from "cinnabar";
import { afterEach, describe, expect, it } from "vitest";
import { MemPort } from "../../src/fabric/mem-port.ts";
import { defaultLayout } from "../../src/fabric/port-layout.ts";
import { pair } from "../matrix/pair.ts";
import { providers } from "../matrix/providers.ts";
import { untilTurn } from "../matrix/wait.ts";
import { Child } from "../processes/child.ts";
import { fabrics, freshUrl, underSanitizers } from "../processes/fabrics.ts";
import { endAllPeers, openEngine } from "../processes/peers.ts";
import { Late, type LateReport, LateWriter, lateByte } from "./late-writer.ts";

afterEach(endAllPeers);

/** Under the sanitizers, which take many times as long, enough to see a key that outlives its loan. */
const rounds = underSanitizers ? 1000 : 10_000;
const batch = 50;
const canary = 0x5a;
/** Several pages, and no whole number of them. */
const bytes = 20_000;

interface Proof {
  readonly client: Engine;
  readonly url: string;
  readonly race: () => unknown;
  readonly late: () => Promise<LateReport>;
  readonly writerStats: () => unknown;
}

/** Calls are cancelled in the middle of a put; once their memory is back, nothing writes it any more, whatever is tried. */
async function prove({ client, url, race, late, writerStats }: Proof): Promise<LateReport> {
  const api = (await client.connect(url)).client(Late, { timeoutMs: 60_000 });
  const total = { tried: 0, handlesServed: 0, keysServed: 0, racing: 0, codes: {} as Record<string, number> };
  for (let done = 0; done < rounds; done += batch) {
    const loans = Array.from({ length: batch }, (_, i) => {
      const memory = new Uint8Array(bytes);
      // Every third region is of several pieces.
      const views = i % 3 === 0 ? [memory.subarray(0, 7000), memory.subarray(9000)] : memory;
      const into = client.expose(views, { access: "write" });
      const controller = new AbortController();
      const ended = api.put({ into }, { signal: controller.signal }).then(
        () => "answered",
        (error: { code: string }) => error.code,
      );
      return { memory, into, controller, ended };
    });
    await untilTurn(
      () => loans.every(({ memory }) => memory[0] === lateByte),
      "every region is being put into",
    );
    await race();
    for (const { controller } of loans) controller.abort();
    for (const { into, memory, ended } of loans) {
      expect(await ended).toBe("cancelled");
      await untilTurn(() => into.loans === 0, `the memory comes back after round ${done}`).catch(
        async (error: Error) => {
          const [ours, theirs] = [client.stats(), await writerStats()];
          throw new Error(`${error.message}\n${JSON.stringify({ ours, theirs }, undefined, 1)}`);
        },
      );
      memory.fill(canary);
    }
    const report = await late();
    for (const { memory, into } of loans) {
      // Uint8Array's own search is fast enough for the long proof.
      expect(memory.indexOf(lateByte), `a byte was written after round ${done}`).toBe(-1);
      expect(memory.every((byte) => byte === canary)).toBe(true);
      into.dispose();
    }
    total.tried += report.tried;
    total.handlesServed += report.handlesServed;
    total.keysServed += report.keysServed;
    total.racing += report.racing;
    for (const [code, count] of Object.entries(report.codes))
      total.codes[code] = (total.codes[code] ?? 0) + count;
  }
  expect(total).toMatchObject({ tried: rounds, handlesServed: 0, keysServed: 0 });
  expect(client.stats()).toMatchObject({ regions: 0, quarantinedBytes: 0 });
  return total;
}

describe("memory that is taken back is not written any more", () => {
  it.each(fabrics)("by another process over %s", { timeout: 600_000 }, async (fabric) => {
    const client = await openEngine({ listen: freshUrl(fabric), heartbeatMs: 30_000 });
    const child = new Child("late-writer", { listen: freshUrl(fabric), url: client.urls[0], bytes });
    const { urls } = await child.report("listening");
    const total = await prove({
      client,
      url: urls[0],
      race: () => child.ask("race"),
      late: () => child.ask<LateReport>("late"),
      writerStats: () => child.ask("stats"),
    });
    console.log(`late writes over ${fabric}: ${JSON.stringify(total)}`);
    // On shm and mem the reason is known: there is no such key.
    if (fabric === "shm") expect(Object.keys(total.codes).sort()).toEqual(["266", "cancelled"]);
  });

  it("by a peer in the same thread over mem", { timeout: 600_000 }, async () => {
    const [mem] = providers.filter(({ scheme }) => scheme === "mem");
    if (mem === undefined) expect.fail("mem is in the table");
    const client = await openEngine({ listen: mem.freshUrl() });
    const raw = new MemPort({ scheme: "mem", host: "", port: 0, name: "" }, defaultLayout);
    const writer = new LateWriter(raw, raw.admit(Buffer.from((client.urls[0] as string).slice(6))), bytes);
    const { url, server } = await pair(mem, [writer.implementation], {
      server: { onHandlerError: () => {} },
    });
    const total = await prove({
      client,
      url,
      race: () => writer.race(),
      late: () => writer.late(),
      writerStats: () => server.stats(),
    });
    writer.close();
    expect(Object.keys(total.codes).sort()).toEqual(["266", "cancelled"]);
  });
});
