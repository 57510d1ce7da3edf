import {
  Engine,
  type EngineOptions,
  implement,
  type Peer,
  type SecurityOptions,
  service,
  unary,
} from "cinnabar";
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished, vi } from "vitest";
import { z } from "zod";
import { RetriedCalls } from "../../src/call/retried-calls.ts";
import type { CallIdentity } from "../../src/wire/call-identity.ts";
import { deferred } from "../matrix/wait.ts";
import { Authority } from "./support/authority.ts";
import { secured } from "./support/engines.ts";
import { anyUrl } from "./support/fabric.ts";

const Bank = service("bank.v1", { transfer: unary({ input: z.int(), output: z.string(), replay: true }) });
let ca: Authority;

beforeAll(() => {
  ca = Authority.create("kept-answers-authority");
});
afterAll(() => ca.remove());
afterEach(() => vi.restoreAllMocks());

async function open(options: EngineOptions): Promise<Engine> {
  const engine = await Engine.open({ connectTimeoutMs: 30_000, ...options });
  onTestFinished(() => engine.close());
  return engine;
}

/** A server whose handlers answer when they are let go, and what it has executed. */
async function bank(more: Partial<SecurityOptions> = {}) {
  const executed: string[] = [];
  const gate = deferred<void>();
  const begun = deferred<AbortSignal>();
  const transfer = implement(Bank, {
    async transfer(amount, { identity, signal }) {
      const payer = identity?.kind === "certificate" ? identity.name : "nobody";
      executed.push(payer);
      begun.resolve(signal);
      await gate.promise;
      return `${amount} by ${payer}`;
    },
  });
  const security = secured(ca, "server.example", {}, more);
  const server = await open({ listen: anyUrl, serve: [transfer], security });
  return { server, url: server.urls[0] as string, executed, gate, begun: begun.promise };
}

const apiOf = (peer: Peer) => peer.client(Bank, { timeoutMs: 30_000, retry: { attempts: 2 } });

/** A client with a certificate of this name; without one it is plain. */
async function clientOf(name: string | undefined, url: string) {
  const engine = await open(
    name === undefined ? {} : { security: secured(ca, `${name}.pem`, { names: `DNS:${name}` }) },
  );
  return apiOf(await engine.connect(url));
}

/** From now on all calls of this process say that they are the one whose identity is returned first. */
function stealIdentities(): CallIdentity[] {
  const seen: CallIdentity[] = [];
  const identify = RetriedCalls.prototype.identify;
  vi.spyOn(RetriedCalls.prototype, "identify").mockImplementation(function (this: RetriedCalls, ...args) {
    const [first] = seen;
    if (first !== undefined) return first;
    seen.push(identify.apply(this, args));
    return seen[0] as CallIdentity;
  });
  return seen;
}

const foreign = {
  code: "permission_denied",
  message: expect.stringContaining("the calls of this caller belong to another identity"),
};

describe("a caller that knows the number of another one's call", () => {
  it.each([
    ["who has another certificate", "thief.example"],
    ["who has none, where plain peers are let in", undefined],
  ])("and %s, gets no kept answer, and nothing is executed for it", async (_, name) => {
    const { server, url, executed, gate } = await bank({ allowPlain: name === undefined });
    gate.resolve();
    const seen = stealIdentities();
    const owner = await clientOf("owner.example", url);
    expect(await owner.transfer(5)).toBe("5 by owner.example");
    const thief = await clientOf(name, url);
    await expect(thief.transfer(5)).rejects.toMatchObject(foreign);
    expect(seen).toHaveLength(1);
    // Who has the same name, as after a renewal, gets it: so the number was the right one.
    const renewed = await clientOf("owner.example", url);
    expect(await renewed.transfer(5)).toBe("5 by owner.example");
    expect(executed).toEqual(["owner.example"]);
    expect(server.stats().security.refusals).toEqual({ other_identity: 1 });
  });

  it("cannot join it while it runs", async () => {
    const { url, executed, gate, begun } = await bank();
    stealIdentities();
    const owner = await clientOf("owner.example", url);
    const thief = await clientOf("thief.example", url);
    const owned = owner.transfer(7);
    const signal = await begun;
    await expect(thief.transfer(7)).rejects.toMatchObject(foreign);
    expect(signal.aborted).toBe(false);
    gate.resolve();
    expect(await owned).toBe("7 by owner.example");
    expect(executed).toEqual(["owner.example"]);
  });
});
