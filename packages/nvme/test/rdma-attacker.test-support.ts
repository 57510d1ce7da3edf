import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Readable, Writable } from "node:stream";
import { root } from "../../../test/docs/pages.test-support.ts";
import { admin, cqeBytes, fabrics, fabricsOpcode, io, sgl } from "../src/nvme/command.ts";
import { blocksOf, type CommandFields, commandEntry, connectFields } from "../src/tcp/host.test-support.ts";

/** The program of the C++ tests. It plays a client of queue pairs, by the commands of a test. */
const program = join(root, "native/build/cinnabar_native_tests");

/** Memory of the attacker for which it has a key. */
export interface ExposedMemory {
  readonly number: number;
  readonly key: number;
  readonly address: bigint;
}

/** What the private data of a connection request are: bytes, or libfabric's own. */
export type PrivateData = Buffer | undefined;

/** A process that uses queue pairs of an RDMA device by the commands of a test, valid or not. */
export class RdmaAttacker implements AsyncDisposable {
  readonly #child: ChildProcessByStdio<Writable, Readable, null>;
  readonly #answers: string[] = [];
  readonly #waiting: ((line: string) => void)[] = [];
  #memories = 0;

  private constructor(child: ChildProcessByStdio<Writable, Readable, null>) {
    this.#child = child;
    createInterface(child.stdout).on("line", (line) => {
      const next = this.#waiting.shift();
      if (next === undefined) this.#answers.push(line);
      else next(line);
    });
    child.once("close", () => {
      for (const one of this.#waiting.splice(0)) one("the attacker has ended");
    });
  }

  /** Starts it at one end of a cable, against a port at the other. */
  static async start(host: string, port: number, source: string): Promise<RdmaAttacker> {
    const args = ["--part", "queue-pairs", "verbs", host, `${port}`, source];
    const attacker = new RdmaAttacker(spawn(program, args, { stdio: ["pipe", "pipe", "inherit"] }));
    const line = await attacker.#next();
    if (line !== "ready") throw new Error(line);
    return attacker;
  }

  /** Undefined if the connection is refused. */
  async connect(privateData?: PrivateData): Promise<AttackingQueue | undefined> {
    const words =
      privateData === undefined ? [] : [privateData.length === 0 ? "-" : privateData.toString("hex")];
    const line = await this.ask("connect", ...words);
    if (line === "refused") return undefined;
    const [word, number] = line.split(" ");
    if (word !== "connected") throw new Error(`connect: ${line}`);
    return new AttackingQueue(this, Number(number));
  }

  /** Requests many connections at once, sends nothing on them, and closes them when all are answered. */
  async flood(count: number): Promise<{ connected: number; refused: number; silent: number }> {
    const [connected = 0, refused = 0, silent = 0] = (await this.ask("flood", count)).split(" ").map(Number);
    return { connected, refused, silent };
  }

  async expose(bytes: number): Promise<ExposedMemory> {
    const [key, address] = (await this.ask("expose", bytes)).split(" ");
    return { number: this.#memories++, key: Number(key), address: BigInt(address ?? 0) };
  }

  withdraw({ number }: ExposedMemory): Promise<string> {
    return this.ask("withdraw", number);
  }

  async peek({ number }: ExposedMemory, offset: number, bytes: number): Promise<Buffer> {
    return Buffer.from(await this.ask("peek", number, offset, bytes), "hex");
  }

  async poke({ number }: ExposedMemory, offset: number, data: Buffer): Promise<void> {
    await this.ask("poke", number, offset, data.toString("hex"));
  }

  ask(...words: readonly (string | number)[]): Promise<string> {
    this.#child.stdin.write(`${words.join(" ")}\n`);
    return this.#next();
  }

  /** Ends the process as if its machine had failed. */
  async kill(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    this.#child.kill("SIGKILL");
    await once(this.#child, "close");
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.kill();
  }

  async #next(): Promise<string> {
    return this.#answers.shift() ?? new Promise((resolve) => this.#waiting.push(resolve));
  }
}

/** What a queue received: an answer, or the end. */
export type Heard = { readonly id: number; readonly status: number; readonly result: bigint } | "over";

/** A connection of the attacker's. */
export class AttackingQueue {
  readonly #attacker: RdmaAttacker;
  readonly #number: number;

  constructor(attacker: RdmaAttacker, number: number) {
    this.#attacker = attacker;
    this.#number = number;
  }

  /** Posts receives for answers. */
  async receive(count: number): Promise<void> {
    await this.#attacker.ask("receive", this.#number, count);
  }

  /** Sends a capsule. False where the connection does not take it. */
  async send(...parts: readonly Buffer[]): Promise<boolean> {
    return (await this.#attacker.ask("send", this.#number, Buffer.concat(parts).toString("hex"))) === "0";
  }

  async hear(): Promise<Heard> {
    const [word, hex = ""] = (await this.#attacker.ask("hear", this.#number)).split(" ");
    if (word === "over") return "over";
    const answer = Buffer.from(hex, "hex");
    if (word !== "message" || answer.length !== cqeBytes) throw new Error(`hear: ${word} ${hex}`);
    return {
      id: answer.readUInt16LE(12),
      status: (answer.readUInt16LE(14) >>> 1) & 0x7ff,
      result: answer.readBigUInt64LE(0),
    };
  }

  /** Sends a command, and waits for its answer. */
  async command(fields: KeyedFields, inCapsule: Buffer = Buffer.alloc(0)): Promise<Heard> {
    await this.receive(1);
    await this.send(keyedEntry(fields), inCapsule);
    return this.hear();
  }

  close(): Promise<string> {
    return this.#attacker.ask("close", this.#number);
  }
}

/** The fields of a command whose data are in memory, `at` bytes from its beginning, unless its descriptor is another. */
export interface KeyedFields extends CommandFields {
  readonly memory?: ExposedMemory;
  readonly at?: number;
  readonly key?: number;
}

export function keyedEntry({ memory, at = 0, key, ...fields }: KeyedFields): Buffer {
  const sglKind = fields.sglKind ?? sgl.keyed;
  const entry = commandEntry({ ...fields, sglKind });
  if (sglKind !== sgl.keyed && sglKind !== sgl.keyedInvalidate) return entry;
  entry.writeBigUInt64LE(BigInt.asUintN(64, (memory?.address ?? 0n) + BigInt(at)), 24);
  entry.writeUIntLE(fields.bytes ?? 0, 32, 3);
  entry.writeUInt32LE(key ?? memory?.key ?? 0, 35);
  return entry;
}

/** The private data of a host's request, as the specification of NVMe/RDMA has them. */
export function privateDataOf(queueId: number, entries: number, format = 0): Buffer {
  const data = Buffer.alloc(32);
  for (const [index, value] of [format, queueId, entries, Math.max(0, entries - 1)].entries())
    data.writeUInt16LE(value, 2 * index);
  return data;
}

/** A controller of the attacker's, with an I/O queue. */
export interface AttackingController {
  readonly admin: AttackingQueue;
  readonly io: AttackingQueue;
}

/** Behaves as a host does until it has an I/O queue. */
export async function beginAttack(
  attacker: RdmaAttacker,
  nqn: string,
  entries = 8,
): Promise<AttackingController> {
  const open = async (queueId: number, controllerId: number) => {
    const queue = await attacker.connect(privateDataOf(queueId, entries));
    if (queue === undefined) throw new Error("refused");
    await queue.receive(1);
    const { entry, data } = connectFields({
      queueId,
      entries: queueId === 0 ? 32 : entries,
      controllerId,
      nqn,
    });
    await queue.send(entry, data);
    const heard = await queue.hear();
    if (heard === "over" || heard.status !== 0)
      throw new Error(`Connect: ${JSON.stringify(heard, bigintText)}`);
    return { queue, controllerId: Number(heard.result & 0xffffn) };
  };
  const { queue, controllerId } = await open(0, 0xffff);
  const words = [0, 0x14, 0x460001, 0];
  const enabled = await queue.command({ opcode: fabricsOpcode, nsid: fabrics.propertySet, words });
  if (enabled === "over" || enabled.status !== 0) throw new Error("it is not enabled");
  return { admin: queue, io: (await open(1, controllerId)).queue };
}

const bigintText = (_: string, value: unknown) => (typeof value === "bigint" ? `${value}` : value);

export const writeFields = (id: number, first: number, bytes: number): CommandFields => ({
  ...{ opcode: io.write, id, nsid: 1, bytes },
  words: blocksOf(first, Math.ceil(bytes / 4096)),
});
export const readFields = (id: number, first: number, bytes: number): CommandFields => ({
  ...writeFields(id, first, bytes),
  opcode: io.read,
});
export const identifyFields = (id: number): CommandFields => ({
  ...{ opcode: admin.identify, id, words: [1], bytes: 4096 },
});
