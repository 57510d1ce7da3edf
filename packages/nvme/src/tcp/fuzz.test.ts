import { expect, it } from "vitest";
import { memoryDevice } from "../device/memory-device.ts";
import { FakeSocket } from "../fake-socket.test-support.ts";
import { numbersFrom } from "../numbers.test-support.ts";
import { Access } from "../nvme/access.ts";
import { fabrics, fabricsOpcode, io, parseCommand, sgl } from "../nvme/command.ts";
import { Controller } from "../nvme/controller.ts";
import { newUsage } from "../nvme/identify.ts";
import { bareQueue, somePlaces } from "../nvme/queue.test-support.ts";
import { reservationsOf } from "../nvme/reservations.ts";
import { blocksOf, commandEntry, connectFields, icRequest } from "./host.test-support.ts";
import { pduFlag, pduParts, pduType } from "./pdu.ts";
import { TcpQueue } from "./queue.ts";

/** How many mutated PDUs are tried. The stage disks-fuzz of `npm test` sets ten million. */
const messages = Number(process.env.CINNABAR_AMOUNT ?? 5_000);
const extremes = [0, 1, 8, 23, 24, 72, 128, 4096, 65_536, 2 ** 24, 2 ** 31, 2 ** 32 - 1];
const answers: readonly number[] = [
  ...[pduType.icResp, pduType.c2hTermReq, pduType.capsuleResp, pduType.c2hData, pduType.r2t],
];
/** Commands about reservations, with the length that their data must have. */
const reservations = [
  { opcode: io.reservationRegister, bytes: 16 },
  { opcode: io.reservationAcquire, bytes: 16 },
  { opcode: io.reservationRelease, bytes: 8 },
  { opcode: io.reservationReport, bytes: 4 * 128, words: [127, 1] },
];

it(`${messages} mutated PDUs of NVMe/TCP get answers of the protocol or the end of the connection`, async () => {
  const next = numbersFrom(Number(process.env.CINNABAR_SEED ?? 1));
  const device = memoryDevice({ bytes: 2 ** 20 });
  const namespaces = new Map([
    [
      1,
      {
        nsid: 1,
        device,
        uuid: Buffer.alloc(16, 1),
        access: new Access(),
        usage: newUsage(),
        reservations: reservationsOf(device),
      },
    ],
  ]);
  const subsystem = { nqn: "nqn.2026-11.test:disk", serial: "1", model: "test", namespaces };
  const seen = new Map<number, number>();
  for (let tried = 0; tried < messages; ) {
    const socket = new FakeSocket();
    const queueId = next(2);
    const queue = new TcpQueue(socket, {
      connect: async (own) => {
        const adminQueue = queueId === 0 ? own : bareQueue();
        const place = { transport: "tcp" as const, host: "127.0.0.1", port: 4420 };
        const discovery = { places: [place], nqns: [] };
        const host = { nqn: "nqn.2026-11.test:host", id: "1" };
        const controller = new Controller(1, host, subsystem, discovery, {
          ...{ keepAliveMs: 0, adminQueue, maxIoQueues: 1 },
        });
        const words = [0, 0x14, 0x460001, 0];
        await controller.execute(
          parseCommand(commandEntry({ opcode: fabricsOpcode, nsid: fabrics.propertySet, words })),
        );
        return { controller, queueId, entries: 32 };
      },
      maxBytes: 2 ** 20,
      admission: { places: somePlaces(), admit: () => true },
    });
    const run = queue.run();
    const digests = { header: next(2) === 0, data: next(2) === 0 };
    const pdu = (type: number, flags: number, header: Buffer, data?: Buffer) =>
      // Some digests are made after the mutation, since a wrong digest ends the connection first.
      Buffer.concat(pduParts(type, flags, mutated(header, 4), digests, data));
    const { entry, data } = connectFields({});
    const parts = [
      icRequest(digests),
      Buffer.concat(pduParts(pduType.capsuleCmd, 0, Buffer.concat([Buffer.alloc(8), entry]), digests, data)),
    ];
    for (let count = 1 + next(20); count > 0; count--) {
      const bytes = 4096 * (1 + next(4));
      const kind = next(8);
      const fields = {
        opcode: [0, 1, 2, 5, 8, 9, 6, 2, 0x0c, 9, 0x0a, 0x18, 8, 2, 2, 2, fabricsOpcode][next(17)] ?? 0,
        id: next(40),
        nsid: next(10) === 0 ? next(5) : 1,
        words:
          next(3) === 0 ? [next(2 ** 32), next(2 ** 16), next(2 ** 32)] : blocksOf(next(256), bytes / 4096),
        bytes,
        ...(next(4) === 0 && { words: [next(2 ** 12)], ...reservations[next(reservations.length)] }),
      };
      const inCapsule = kind < 3;
      const command = commandEntry({ ...fields, sglKind: inCapsule ? sgl.inCapsule : sgl.transport });
      const header = Buffer.concat([Buffer.alloc(8), command]);
      if (kind < 6)
        parts.push(pdu(pduType.capsuleCmd, 0, header, inCapsule ? Buffer.alloc(fields.bytes, 1) : undefined));
      else if (kind === 6) {
        const place = Buffer.alloc(24);
        place.writeUInt16LE(fields.id, 8);
        place.writeUInt16LE(next(3), 10);
        place.writeUInt32LE(bytes, 16);
        parts.push(pdu(pduType.h2cData, next(2) === 0 ? pduFlag.last : 0, place, Buffer.alloc(bytes, 2)));
      } else parts.push(pdu(next(12), next(16), Buffer.alloc(24)));
    }
    tried += parts.length;
    for (const part of parts) socket.push(mutated(part, 25));
    socket.push(null);
    await run;
    await queue.settled;
    expect(socket.destroyed).toBe(true);
    checkAnswers(Buffer.concat(socket.sent));
  }
  for (const type of answers)
    expect(seen.get(type) ?? 0, `PDUs of type ${type}`).toBeGreaterThan(messages / 1000);

  function mutated(message: Buffer, share: number): Buffer {
    if (next(share) > 0) return message;
    const copy = Buffer.from(message);
    const at = next(copy.length);
    switch (next(5)) {
      case 0:
        copy[at] = (copy[at] ?? 0) ^ (1 << next(8));
        return copy;
      case 1:
        if (copy.length >= at + 4) copy.writeUInt32LE(extremes[next(extremes.length)] ?? 0, at);
        return copy;
      case 2:
        // A header keeps its length, since the fields of its head are filled in afterwards.
        return share === 4 ? copy.fill(next(256), at) : copy.subarray(0, at);
      case 3:
        return share === 4
          ? copy
          : Buffer.concat([copy.subarray(0, at), Buffer.alloc(next(40)), copy.subarray(at)]);
      default:
        return share === 4 ? copy : Buffer.concat([copy, copy]);
    }
  }

  /** What the target sent are whole PDUs of its side. */
  function checkAnswers(sent: Buffer): void {
    let at = 0;
    while (at < sent.length) {
      const type = sent.readUInt8(at);
      if (!answers.includes(type)) throw new Error(`a PDU of type ${type} at ${at}`);
      seen.set(type, (seen.get(type) ?? 0) + 1);
      at += sent.readUInt32LE(at + 4);
    }
    expect(at).toBe(sent.length);
  }
});
