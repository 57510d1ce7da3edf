// Capsules of NVMe over Fabrics in Cinnabar's calls. A queue is an open stream, and a command is a call:
//
//   open     Connect's capsule. The first item is its completion, with the queue's key where it succeeded. The queue
//            lives as long as the stream.
//   submit   a command: key (8 bytes), entry (64), data of the host. The answer: completion (16), data for the host.
//   gather   a command whose data the controller gets from the host's memory.
//   scatter  a command whose data the controller puts into the host's memory.
//   fuse     the two commands of a fused operation: key, two entries, data of the first and of the second. The answer:
//            two completions.
//   gatherFused  the same, whose data the controller gets from the host's memory.
import { bulk, bytes, fields, serverStream, service, unary } from "cinnabar/standard";
import { cqeBytes, sqeBytes } from "../nvme/command.ts";
import { maxFusedBytes, maxTransferBytes } from "../nvme/identify.ts";

export const keyBytes = 8;
/** Where the data of the host begin in a capsule, and those for the host in an answer. */
export const dataAt = {
  capsule: keyBytes + sqeBytes,
  fused: keyBytes + 2 * sqeBytes,
  answer: cqeBytes,
} as const;

const capsule = bytes({ minBytes: dataAt.capsule, maxBytes: dataAt.capsule + maxTransferBytes });
const answer = bytes({ minBytes: dataAt.answer, maxBytes: dataAt.answer + maxTransferBytes });

const fused = bytes({ minBytes: dataAt.fused, maxBytes: dataAt.fused + 2 * maxFusedBytes });
const answers = bytes({ minBytes: 2 * dataAt.answer, maxBytes: 2 * dataAt.answer });

export const Capsules = service("cinnabar.nvme.v1", {
  open: serverStream({ input: capsule, output: answer, idleTimeoutMs: false }),
  submit: unary({ input: capsule, output: answer }),
  gather: unary({
    input: fields({ capsule, memory: bulk("read", { maxBytes: maxTransferBytes }) }),
    output: answer,
  }),
  scatter: unary({
    input: fields({ capsule, memory: bulk("write", { maxBytes: maxTransferBytes }) }),
    output: answer,
  }),
  fuse: unary({ input: fused, output: answers }),
  gatherFused: unary({
    input: fields({ capsule: fused, memory: bulk("read", { maxBytes: 2 * maxFusedBytes }) }),
    output: answers,
  }),
});

/** Bytes of a message as a buffer, without a copy. */
export const bufferOf = ({ buffer, byteOffset, byteLength }: Uint8Array): Buffer =>
  Buffer.from(buffer, byteOffset, byteLength);
