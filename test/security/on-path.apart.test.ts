import { Engine, implement, type SecurityOptions, service, unary } from "cinnabar";
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import type { Port } from "../../src/fabric/port.ts";
import { nonceOffset, numberOffset, sealedMagic } from "../../src/wire/message.ts";
import { Authority } from "./support/authority.ts";
import { secured } from "./support/engines.ts";
import { anyUrl, PortOnPath } from "./support/fabric.ts";

const SecretVault = service("secretvault.v1", {
  unlockDoor: unary({ input: z.object({ text: z.string() }), output: z.object({ text: z.string() }) }),
});
const vault = implement(SecretVault, { unlockDoor: (input) => input });
const plainSend = PortOnPath.prototype.send;
const nobody = { onSent: () => {} };
let ca: Authority;
let other: Authority;

beforeAll(() => {
  ca = Authority.create("on-path-authority");
  other = Authority.create("foreign-authority");
});
afterAll(() => {
  ca.remove();
  other.remove();
});
afterEach(() => {
  PortOnPath.prototype.send = plainSend;
});

async function open(security: SecurityOptions | undefined, listen?: string): Promise<Engine> {
  const engine = await Engine.open({
    connectTimeoutMs: 30_000,
    // A session that a busy machine loses takes the injected messages with it.
    heartbeatMs: 20_000,
    ...(security && { security }),
    ...(listen && { listen, serve: [vault] }),
  });
  onTestFinished(() => engine.close());
  return engine;
}

const serve = (more: Partial<SecurityOptions> = {}) => open(secured(ca, "server.example", {}, more), anyUrl);

/** Each message of the engines of this process as it leaves. */
function overhear(): Buffer[] {
  const heard: Buffer[] = [];
  PortOnPath.prototype.send = function (address, slot, bytes, listener) {
    heard.push(Buffer.from(this.slab.subarray(slot, slot + bytes)));
    plainSend.call(this, address, slot, bytes, listener);
  };
  return heard;
}

describe("somebody who listens", () => {
  it("reads no name of a service, a method or a peer, and nothing that is said", async () => {
    const heard = overhear();
    const server = await serve();
    const client = await open(secured(ca, "client.example"));
    const peer = await client.connect(server.urls[0] as string);
    const api = peer.client(SecretVault);
    expect(await api.unlockDoor({ text: "open sesame" })).toEqual({ text: "open sesame" });
    await client.close();
    expect(heard.some((message) => message[0] === sealedMagic)).toBe(true);
    const all = Buffer.concat(heard);
    for (const text of ["secretvault", "unlockDoor", "sesame", "client.example", "server.example"])
      expect([text, all.includes(text)]).toEqual([text, false]);
  });

  it("and a stranger who knocks are told no name of a service or a method", async () => {
    const heard = overhear();
    const server = await serve();
    const url = server.urls[0] as string;
    const foreign = other.issue("foreign.example", { names: "DNS:foreign.example" });
    const strangers = [
      await open(undefined),
      await open({ tls: { ...foreign, ca: ca.cert } }),
      await open({ psk: { identity: "guessed", key: Buffer.alloc(32, 1) } }),
    ];
    for (const stranger of strangers)
      await expect(stranger.connect(url)).rejects.toMatchObject({ code: "unauthenticated" });
    const all = Buffer.concat(heard);
    for (const text of ["secretvault", "unlockDoor"])
      expect([text, all.includes(text)]).toEqual([text, false]);
    expect(server.stats()).toMatchObject({ sessions: 0, security: { handshakes: 0 } });
    // As it is where somebody is let in without a proof: so the search would have found them.
    const lenient = await serve({ allowPlain: true });
    await (strangers[0] as Engine).connect(lenient.urls[0] as string);
    expect(Buffer.concat(heard).includes("secretvault")).toBe(true);
  });
});

/** Where the messages of a port go, and the part of their headers that says to which session. */
interface Path {
  readonly port: Port;
  readonly address: number;
  readonly head: Uint8Array;
}

describe("sealed messages that somebody sends elsewhere", () => {
  it("to another session, or back to who has sealed them, are dropped, and no call notices", async () => {
    const server = await serve();
    const url = server.urls[0] as string;
    const clients = await Promise.all(["one.example", "two.example"].map((name) => open(secured(ca, name))));
    const peers = await Promise.all(clients.map((client) => client.connect(url)));
    const apis = peers.map((peer) => peer.client(SecretVault, { timeoutMs: 30_000 }));

    const dropped = () => {
      const { messagesForged, messagesRepeated, strays } = server.stats().counters;
      return { messages: messagesForged + messagesRepeated, strays };
    };
    // A slow machine says hello twice, which has come when a call has been answered.
    await Promise.all(apis.map((api) => api.unlockDoor({ text: "first" })));
    const { strays } = dropped();
    const paths = new Map<Port, Path>();
    let injected = 0;
    /** The message as if it were one of this path. */
    const inject = (message: Uint8Array, { port, address, head }: Path) => {
      const slot = port.takeSlot();
      if (slot < 0) return;
      port.slab.set(message, slot);
      port.slab.set(head, slot + nonceOffset);
      plainSend.call(port, address, slot, message.byteLength, nobody);
      injected++;
    };
    PortOnPath.prototype.send = function (address, slot, bytes, listener) {
      const message = Uint8Array.from(this.slab.subarray(slot, slot + bytes));
      plainSend.call(this, address, slot, bytes, listener);
      if (message[0] !== sealedMagic) return;
      const isServer = this.url === url;
      if (!isServer) paths.set(this, { port: this, address, head: headOf(message) });
      if (paths.size < clients.length) return;
      // What the server says comes back to it, from either client; what a client says, as if the other had said it.
      for (const path of paths.values()) if (isServer || path.port !== this) inject(message, path);
    };
    for (let i = 0; i < 30; i++) {
      const texts = Array.from({ length: 4 }, (_, n) => `${i}.${n}`);
      const answers = await Promise.all(
        texts.flatMap((text) => apis.map((api) => api.unlockDoor({ text: text.repeat(i + 1) }))),
      );
      expect(answers.map(({ text }) => text)).toEqual(
        texts.flatMap((text) => apis.map(() => text.repeat(i + 1))),
      );
    }
    PortOnPath.prototype.send = plainSend;
    expect(injected).toBeGreaterThan(100);
    // By its number a message of elsewhere may look like one that has been, or like one to come.
    await expect.poll(dropped, { timeout: 20_000 }).toEqual({ messages: injected, strays });
    expect(server.stats().counters).toMatchObject({ malformed: 0, sessionsLost: 0 });
    expect(server.stats().sessions).toBe(2);
  });
});

/** The nonce and the index of its session. */
const headOf = (message: Uint8Array) => message.slice(nonceOffset, numberOffset);
