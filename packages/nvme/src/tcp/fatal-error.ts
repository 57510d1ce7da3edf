import { pduParts } from "./pdu.ts";

/** A fault of the peer that ends the connection, with the fields of the TermReq. */
export class FatalError extends Error {
  readonly fes: number;
  readonly fei: number;
  readonly header: Buffer;

  constructor(fes: number, fei: number, header: Buffer, message = "") {
    super(message);
    this.fes = fes;
    this.fei = fei;
    // The memory of the reader holds it for a moment.
    this.header = Buffer.from(header);
  }
}

/** The parts of the TermReq that reports the fault to the peer. */
export function terminationParts(type: number, { fes, fei, header }: FatalError): Buffer[] {
  const request = Buffer.alloc(24);
  request.writeUInt16LE(fes, 8);
  request.writeUInt32LE(fei, 10);
  const parts = pduParts(type, 0, request, { header: false, data: false }, header.subarray(0, 128));
  // The offending header is data without an offset.
  request.writeUInt8(0, 3);
  return parts;
}
