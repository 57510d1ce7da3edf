import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { codeNumbers } from "../../src/base/errors/code.ts";
import { IncomingCall, type Outcome } from "../../src/call/incoming-call.ts";
import { controlMethods } from "../../src/engine/session-parts.ts";
import { RemoteRegion } from "../../src/memory/remote-region.ts";
import { ExecutedCalls, executedFrames } from "../../src/session/calls/executed-calls.ts";
import type { OutgoingCalls } from "../../src/session/calls/outgoing-calls.ts";
import { maxRegions, maxSegments } from "../../src/session/calls/request-regions.ts";
import { Outbox } from "../../src/session/channel/outbox.ts";
import { FakePort, takeApart } from "../../src/session/connection/fake-port.test-support.ts";
import { peerGreeting } from "../../src/session/connection/fake-services.test-support.ts";
import type { Session } from "../../src/session/connection/session.ts";
import { keepalive } from "../../src/session/liveness/keepalive.ts";
import type { PeerLink } from "../../src/transfer/control/peer-link.ts";
import { Borrowing } from "../../src/transfer/handles/borrowing.ts";
import { Shares } from "../../src/transfer/handles/shares.ts";
import { builtin, firstBuiltin } from "../../src/wire/builtin.ts";
import {
  type CallIdentity,
  callIdentityBytes,
  readCallIdentity,
  writeCallIdentity,
} from "../../src/wire/call-identity.ts";
import { decodeAt } from "../../src/wire/decode-value.ts";
import { maxDepth } from "../../src/wire/extension.ts";
import {
  frameFault,
  frameFlag,
  frameHeaderBytes,
  frameKind,
  readRendezvous,
  rendezvousBytes,
  senderState,
  writeRendezvous,
} from "../../src/wire/frame.ts";
import {
  readHandleDescriptor,
  registerHandleClass,
  writeHandleDescriptor,
} from "../../src/wire/handle-descriptor.ts";
import {
  greetingLimits,
  minMessageBytes,
  packGreeting,
  parseAnnouncedHealth,
  parseGreeting,
  parseServices,
} from "../../src/wire/handshake.ts";
import { messageFault, messageHeaderBytes, Nonce } from "../../src/wire/message.ts";
import { metadataLength, readMetadata, writeMetadata } from "../../src/wire/metadata/metadata-block.ts";
import {
  maxRegionSegments,
  readRegionDescriptor,
  registerRegionClass,
  writeRegionDescriptor,
} from "../../src/wire/region-descriptor.ts";
import { maxWork } from "../../src/wire/work.ts";
import {
  fromJson,
  HandleMeaning,
  type MetadataMeaning,
  RegionMeaning,
  type Vector,
  type VectorFrame,
} from "./support/meaning.ts";

const read = (path: string): string => readFileSync(new URL(path, import.meta.url), "utf8");
const vectors: readonly Vector[] = JSON.parse(read("./messages.json"));
const bytesOf = ({ hex }: Vector): Uint8Array => Uint8Array.from(Buffer.from(hex, "hex"));

// In the place of the engine's own, which are no plain meanings.
registerRegionClass(RegionMeaning as unknown as abstract new () => object);
registerHandleClass(
  HandleMeaning as abstract new (
    ...args: never[]
  ) => HandleMeaning,
  ({ handle }) => writeHandleDescriptor(handle),
  (bytes) => {
    const handle = readHandleDescriptor(bytes);
    if (typeof handle === "string") throw new Error(handle);
    return new HandleMeaning(handle);
  },
);

const regions = {
  flags: 0,
  encodeRegion: (region: object) => writeRegionDescriptor(region as RegionMeaning),
  decodeRegion: (bytes: Uint8Array) => {
    const region = readRegionDescriptor(bytes);
    if (typeof region === "string") throw new Error(region);
    return new RegionMeaning(region);
  },
};

interface RendezvousMeaning {
  readonly key: string;
  readonly address: string;
  readonly bytes: number;
}

function identityOf({ identity }: VectorFrame): CallIdentity | undefined {
  if (identity === undefined) return undefined;
  return {
    ...identity,
    caller: BigInt(identity.caller),
    incarnation: BigInt(identity.incarnation),
  };
}

type Value = string | Uint8Array;

function metadataOf({ metadata }: VectorFrame): Map<string, Value | Value[]> | undefined {
  if (metadata === undefined) return undefined;
  const value = (each: MetadataMeaning): Value =>
    typeof each === "string" ? each : Uint8Array.from(Buffer.from(each.$bytes, "hex"));
  const values = (each: MetadataMeaning | readonly MetadataMeaning[]) =>
    Array.isArray(each) ? each.map(value) : value(each as MetadataMeaning);
  return new Map(Object.entries(metadata).map(([name, each]) => [name, values(each)]));
}

/** What stands before the body. */
function prefixOf(frame: VectorFrame): Uint8Array | undefined {
  const identity = identityOf(frame);
  const metadata = metadataOf(frame);
  const block = metadata === undefined ? undefined : writeMetadata(metadata);
  if (typeof block === "string") throw new Error(block);
  const parts = [
    ...(identity === undefined ? [] : [writeCallIdentity(identity)]),
    ...(block === undefined ? [] : [block]),
  ];
  return parts.length === 0 ? undefined : Buffer.concat(parts);
}

function rendezvousOf({ body }: VectorFrame) {
  const meaning = (body as { $rendezvous?: RendezvousMeaning } | undefined)?.$rendezvous;
  if (meaning === undefined) return undefined;
  return { key: BigInt(meaning.key), address: BigInt(meaning.address), bytes: meaning.bytes };
}

/** Call ids. */
function executedOf({ body }: VectorFrame): readonly number[] | undefined {
  return (body as { $executed?: number[] } | undefined)?.$executed;
}

/** What this implementation reads in a frame of executed calls. */
function readExecuted(slabView: DataView, at: number, bodyBytes: number): number[] {
  const read: number[] = [];
  const session = { port: { slabView }, fault: (text: string) => expect.fail(text) };
  const calls = {
    find: (id: number) => ({ id, terms: { isOneWay: true } }),
    onExecuted: ({ id }: { id: number }) => read.push(id),
    sendWaiting: () => {},
  };
  const take = executedFrames(session as unknown as Session, calls as unknown as OutgoingCalls);
  take(at, bodyBytes, 0, frameKind.executed);
  return read;
}

/** What this implementation sends for a vector's meaning, by the way every frame goes. */
function encoded({ session, nonce, number, frames }: Vector): string {
  const [first] = frames;
  if (first?.kind === frameKind.pong && first.method === senderState.busy) {
    const peer = { ...peerGreeting, session, nonce: BigInt(nonce) };
    return Buffer.from(keepalive({ nonce: new Nonce(1n) }, peer, 1).message).toString("hex");
  }
  const port = new FakePort(2, 16_384);
  const ignore = () => {};
  const progress = { wake: ignore, flushSoon: ignore, goOn: ignore };
  const listener = {
    onRoom: ignore,
    onSendFailed: ignore,
    counters: { messagesSent: 0, framesSent: 0 },
    isWatched: true,
    bodyLimit: 2 ** 29,
    watch: ignore,
    onOverrun: ignore,
    onDrained: ignore,
  };
  const outbox = new Outbox(port, 0, progress, listener, 1e6, 1e6);
  outbox.addressTo({ session, nonce: BigInt(nonce), messageBytes: 16_384 });
  for (let before = 1; before < number; before++) {
    outbox.bare({ kind: frameKind.ping, method: 0, callId: 0, word: 0 });
    outbox.flush();
    port.complete();
  }
  for (const frame of frames) {
    const rendezvous = rendezvousOf(frame);
    const prefix = prefixOf(frame);
    const executed = executedOf(frame);
    if (executed !== undefined) {
      const session = {
        services: { progress },
        outbox,
        state: "open",
      };
      const calls = new ExecutedCalls(session as unknown as Session);
      for (const id of executed) calls.add(id);
      calls.flush();
    } else if (frame.body === undefined) outbox.raw(frame, frame.flags, new Uint8Array(0), prefix);
    else if (rendezvous !== undefined) {
      const descriptor = new Uint8Array(rendezvousBytes);
      writeRendezvous(new DataView(descriptor.buffer), 0, rendezvous);
      outbox.raw(frame, frame.flags, descriptor, prefix);
    } else {
      const never = () => expect.fail("offered");
      outbox.value(frame, fromJson(frame.body), never, { ...regions, flags: frame.flags }, prefix);
    }
  }
  outbox.flush();
  return Buffer.from(port.sent.at(-1)?.bytes ?? []).toString("hex");
}

describe("golden vectors", () => {
  it("hold every kind of frame", () => {
    const kinds = new Set(vectors.flatMap(({ frames }) => frames.map(({ kind }) => kind)));
    // Openings by TLS have vectors of their own.
    const { secure, retry, ...others } = frameKind;
    expect([...kinds].sort((a, b) => a - b)).toEqual(Object.values(others));
  });

  it.each(vectors.map((vector) => [vector.name, vector] as const))("are what is sent: %s", (_, vector) => {
    expect(encoded(vector)).toBe(vector.hex);
  });

  it.each(vectors.map((vector) => [vector.name, vector] as const))(
    "are read for what they mean: %s",
    (_, vector) => {
      const bytes = bytesOf(vector);
      const view = new DataView(bytes.buffer);
      expect(messageFault(view, 0, bytes.byteLength)).toBe("");
      let at = messageHeaderBytes;
      const message = takeApart(0, bytes);
      expect([message.session, message.nonce, message.number, message.frames.length]).toEqual([
        vector.session,
        BigInt(vector.nonce),
        vector.number,
        vector.frames.length,
      ]);
      for (const [index, { body: whole, ...head }] of message.frames.entries()) {
        const frame = vector.frames[index] as VectorFrame;
        const { body, identity, metadata, ...meant } = frame;
        expect(frameFault(view, at, bytes.byteLength)).toBe("");
        expect(head).toEqual(meant);
        const identified = (head.flags & frameFlag.identity) !== 0;
        const wholeView = new DataView(whole.buffer, whole.byteOffset, whole.byteLength);
        expect(identified).toBe(identity !== undefined);
        if (identified) expect(readCallIdentity(wholeView, 0, whole.byteLength)).toEqual(identityOf(frame));
        const afterIdentity = identified ? callIdentityBytes : 0;
        const hasMetadata = (head.flags & frameFlag.metadata) !== 0 || head.kind === frameKind.headers;
        expect(hasMetadata).toBe(metadata !== undefined);
        const length = hasMetadata ? metadataLength(whole, afterIdentity, whole.byteLength) : 0;
        if (typeof length === "string") expect.fail(length);
        if (hasMetadata)
          expect(readMetadata(Buffer.from(whole.subarray(afterIdentity, afterIdentity + length)))).toEqual(
            metadataOf(frame),
          );
        const sent = whole.subarray(afterIdentity + length);
        const rendezvous = rendezvousOf(frame);
        const bodyView = new DataView(sent.buffer, sent.byteOffset, sent.byteLength);
        const executed = executedOf(frame);
        if (body === undefined) expect(sent.byteLength).toBe(0);
        else if (executed !== undefined) expect(readExecuted(view, at, whole.byteLength)).toEqual(executed);
        else if (rendezvous !== undefined)
          expect(readRendezvous(bodyView, 0, sent.byteLength, 1e9)).toEqual(rendezvous);
        else expect(decodeAt(sent, 0, sent.byteLength, regions)).toEqual(fromJson(body));
        at += (frameHeaderBytes + whole.byteLength + 7) & ~7;
      }
    },
  );

  it("ask by built-in methods in the form that these read", () => {
    const methods = controlMethods([], new Shares(() => [], 1n), new Borrowing(), 1n);
    for (const [name, number] of Object.entries(builtin)) {
      const [frame] =
        vectors.find(({ frames }) => frames[0]?.kind === frameKind.request && frames[0].method === number)
          ?.frames ?? [];
      if (frame === undefined) expect.fail(`there is no vector of ${name}`);
      const answers: Outcome[] = [];
      const session = { takeOutcome: (_: IncomingCall, outcome: Outcome) => answers.push(outcome) };
      const call = new IncomingCall(session, frame.callId, number);
      const input = (fromJson(frame.body) as unknown[]).map((part) =>
        part instanceof RegionMeaning ? new RemoteRegion(call, part) : part,
      );
      methods[number - firstBuiltin]?.serve(call, session as unknown as PeerLink, input);
      // Whatever they make of it, without a session: it was not the form.
      for (const { error } of answers) expect(error?.message ?? "", name).not.toContain("form");
    }
  });

  it("open sessions with greetings and tables that parse, and pack again to the same", () => {
    for (const name of [
      "hello",
      "welcome",
      "welcome of a side that keeps bodies for 2 s",
      "welcome of a side with services that do not serve",
    ]) {
      const [frame] = vector(name).frames as [VectorFrame];
      const body = fromJson(frame.body) as Record<string, unknown>;
      const greeting = parseGreeting(body);
      if (typeof greeting === "string") expect.fail(greeting);
      expect(packGreeting(greeting)).toEqual(body);
    }
    expect(parseServices(fromJson(vector("services").frames[0]?.body))).toBeTypeOf("object");
    expect(parseAnnouncedHealth(fromJson(vector("health: what does not serve").frames[0]?.body))).toEqual({
      edition: 3,
      notServing: [
        ["files.v1", "reading the index"],
        ["", ""],
      ],
    });
  });
});

function vector(name: string): Vector {
  const found = vectors.find((candidate) => candidate.name === name);
  if (found === undefined) expect.fail(`there is no vector "${name}"`);
  return found;
}

describe("docs/protocol.md", () => {
  const text = read("../../docs/protocol.md");

  it("shows the bytes of the vectors it names, every one of them, at the offsets it says", () => {
    const dumps = [...text.matchAll(/```text vector="([^"]+)"\n([\s\S]*?)```/g)];
    expect(dumps.map(([, name]) => name)).toEqual([
      "hello",
      "request",
      "retried request",
      "three frames in one message",
    ]);
    for (const [, name = "", dump = ""] of dumps) {
      let hex = "";
      for (const line of dump.trim().split("\n")) {
        const [offset = "", bytes = ""] = line.split(/ {2,}/);
        expect(Number.parseInt(offset, 16), `${name}: ${line}`).toBe(hex.length / 2);
        hex += bytes.replaceAll(" ", "");
      }
      expect(hex, name).toBe(vector(name).hex);
    }
  });

  it("names every kind, flag and code with its number", () => {
    for (const [name, kind] of Object.entries(frameKind)) expect(text).toContain(`| ${kind} | \`${name}\` |`);
    for (const [name, flag] of Object.entries(frameFlag)) expect(text).toContain(`| ${flag} | \`${name}\` |`);
    for (const [name, code] of Object.entries(codeNumbers))
      expect(text).toContain(`| ${code} | \`${name}\` |`);
  });

  it("states the limits that the code holds", () => {
    const limits: [string, number][] = [
      ["Nesting", maxDepth],
      ["Steps of a value's tables and expressions", maxWork],
      ["`msg`, at least", minMessageBytes],
      ["Services in a table", greetingLimits.maxServices],
      ["Methods in a table", greetingLimits.maxMethods],
      ["Characters in a name", greetingLimits.maxNameLength],
      ["Bytes in `adr`", greetingLimits.maxAddressBytes],
      ["Characters in `agt`", greetingLimits.maxAgentLength],
      ["Segments of a region", maxRegionSegments],
      ["Regions in a request", maxRegions],
      ["Segments of all regions in a request", maxSegments],
    ];
    for (const [name, limit] of limits) expect(text).toContain(`| ${name} | ${limit.toLocaleString("en")} |`);
  });
});
