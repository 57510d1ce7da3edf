import { Engine } from "cinnabar";
import { afterEach, describe, expect, it } from "vitest";
import { memoryDevice } from "../device/memory-device.ts";
import { NvmeHost } from "../host/nvme-host.ts";
import { HostQueue } from "../tcp/host.test-support.ts";
import { admin, discoveryNqn } from "./command.ts";
import { NvmeTarget, type NvmeTargetOptions } from "./target.ts";

const nqn = "nqn.2026-11.test:disk";
const targets: NvmeTarget[] = [];

afterEach(async () => {
  for (const target of targets.splice(0)) await target.close();
});

async function serve(options: Partial<NvmeTargetOptions> = {}) {
  const subsystems = [{ nqn, namespaces: [memoryDevice({ bytes: 1024 * 1024 })], hosts: "any" as const }];
  const target = await NvmeTarget.listen({ subsystems, port: 0, ...options });
  targets.push(target);
  return { target, port: target.address.port };
}

const setQueues = (control: HostQueue, count: number) =>
  control.command({ opcode: admin.setFeatures, words: [7, (count - 1) * 65_537] });

/** A host that comes, as Linux does: it asks for I/O queues and connects those that it gets. */
class ManyQueues {
  readonly control: HostQueue;
  readonly controllerId: number;
  readonly hostId: number;

  private constructor(control: HostQueue, controllerId: number, hostId: number) {
    this.control = control;
    this.controllerId = controllerId;
    this.hostId = hostId;
  }

  static async connect(port: number, hostId: number): Promise<ManyQueues> {
    const control = await HostQueue.open(port);
    await control.greet();
    const { status, result } = await control.connect({ hostId });
    expect(status).toBe(0);
    expect((await control.setProperty(0x14, 0x460001)).status).toBe(0);
    return new ManyQueues(control, Number(result & 0xffffn), hostId);
  }

  async ask(count: number): Promise<number> {
    const { status, result } = await setQueues(this.control, count);
    expect(status).toBe(0);
    expect(result >> 16n).toBe(result & 0xffffn);
    return Number(result & 0xffffn) + 1;
  }

  async open(port: number, queueId: number): Promise<number> {
    const queue = await HostQueue.open(port);
    await queue.greet();
    const { controllerId, hostId } = this;
    const { status } = await queue.connect({ queueId, controllerId, hostId });
    if (status !== 0) await queue.ended();
    else expect((await queue.read(0, 4096)).status).toBe(0);
    return status;
  }

  /** @returns how many I/O queues the host has */
  async openAll(port: number, wanted: number): Promise<number> {
    const granted = await this.ask(wanted);
    for (let queueId = 1; queueId <= granted; queueId++) expect(await this.open(port, queueId)).toBe(0);
    return granted;
  }
}

/** The status of Connect to an admin queue, whose connection ends where that is not 0. */
async function connectStatus(port: number, hostId: number, name = nqn): Promise<number> {
  const control = await HostQueue.open(port);
  await control.greet();
  const { status, doNotRetry } = await control.connect({ hostId, nqn: name });
  if (status === 0) return 0;
  expect(doNotRetry).toBe(false);
  await control.ended();
  return status;
}

describe("hosts with many processors", () => {
  it("all have queues by default, sixteen each", async () => {
    const { target, port } = await serve();
    const hosts = [];
    for (let hostId = 1; hostId <= 5; hostId++) {
      const host = await ManyQueues.connect(port, hostId);
      expect(await host.ask(64)).toBe(16);
      hosts.push(host);
    }
    for (const host of hosts) for (const queueId of [1, 16]) expect(await host.open(port, queueId)).toBe(0);
    expect(target.stats()).toMatchObject({ controllers: 5, ioQueues: 10, open: 15, refused: 0 });
  });

  it("get the queues that are left, and then a status, until a host goes", async () => {
    const { target, port } = await serve({ maxConnections: 10, maxIoQueues: 6 });
    const first = await ManyQueues.connect(port, 1);
    expect(await first.openAll(port, 64)).toBe(6);
    const second = await ManyQueues.connect(port, 2);
    expect(await second.openAll(port, 64)).toBe(2);
    expect(target.stats()).toMatchObject({ controllers: 2, ioQueues: 8, open: 10, refused: 0 });
    expect(await connectStatus(port, 3)).toBe(0x181);
    expect(await connectStatus(port, 3, discoveryNqn)).toBe(0x181);
    expect(await second.open(port, 3)).toBe(0x181);
    expect(await first.open(port, 7)).toBe(0x182);
    // What was refused took nothing from those that are there.
    expect((await first.control.identify(1)).status).toBe(0);
    second.control.socket.destroy();
    await expect.poll(() => connectStatus(port, 3)).toBe(0);
  });

  it("count a host's place for blocks from its first connection on: it is not granted none", async () => {
    const { port } = await serve({ maxConnections: 4, maxIoQueues: 8 });
    const first = await ManyQueues.connect(port, 1);
    const second = await ManyQueues.connect(port, 2);
    expect(await first.openAll(port, 8)).toBe(1);
    expect(await second.openAll(port, 8)).toBe(1);
  });

  it("keep queues that they do not connect from others for a while alone", async () => {
    const { port } = await serve({ maxConnections: 10, maxIoQueues: 8, handshakeTimeoutMs: 2000 });
    const idle = await ManyQueues.connect(port, 1);
    expect(await idle.ask(8)).toBe(8);
    await expect.poll(() => connectStatus(port, 2), { timeout: 10_000 }).toBe(0);
    // What others leave is there for it as well.
    expect(await idle.open(port, 8)).toBe(0);
  });

  it("may ask before they have queues, and not for more than there are numbers", async () => {
    const { port } = await serve();
    const host = await ManyQueues.connect(port, 1);
    const all = await host.control.command({ opcode: admin.setFeatures, words: [7, 0xffff_ffff] });
    expect(all.status).toBe(2);
    expect(await host.ask(5)).toBe(5);
    expect(await host.openAll(port, 3)).toBe(3);
    expect((await setQueues(host.control, 4)).status).toBe(0x0c);
    const got = await host.control.command({ opcode: admin.getFeatures, words: [7] });
    expect(got.result).toBe(BigInt(2 * 65_537));
  });
});

it("the limits hold in calls as well, and a host says that the target is busy", async () => {
  const target = NvmeTarget.open({
    subsystems: [{ nqn, namespaces: [memoryDevice({ bytes: 1024 * 1024 })], hosts: "any" }],
    maxConnections: 3,
  });
  targets.push(target);
  await using server = await Engine.open({ listen: "mem://places", serve: [target.capsules] });
  await using engine = await Engine.open();
  const paths = [{ engine, url: server.urls[0] ?? "" }];
  const first = await NvmeHost.connect({ nqn, paths, queues: 8 });
  expect(target.stats()).toMatchObject({ controllers: 1, ioQueues: 2, open: 3 });
  await expect(NvmeHost.connect({ nqn, paths })).rejects.toThrow("the controller is busy");
  await first.close();
  await expect.poll(() => target.stats().open).toBe(0);
  await using second = await NvmeHost.connect({ nqn, paths });
  expect(second.namespaces.length).toBe(1);
});
