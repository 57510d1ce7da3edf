/** A status of NVMe: type in bits 8 to 10, code in bits 0 to 7, and whether a repetition is useless. */
export interface Status {
  readonly code: number;
  readonly doNotRetry: boolean;
}

const final = (code: number): Status => ({ code, doNotRetry: true });
const transient = (code: number): Status => ({ code, doNotRetry: false });

export const status = {
  success: transient(0),
  invalidOpcode: final(0x01),
  invalidField: final(0x02),
  idConflict: final(0x03),
  internal: transient(0x06),
  abortRequested: transient(0x07),
  /** The other command of a fused operation failed. */
  fusedFailed: transient(0x09),
  /** A command of a fused operation came without the other. */
  fusedMissing: final(0x0a),
  invalidNamespace: final(0x0b),
  sequence: final(0x0c),
  sglLength: final(0x0f),
  sglType: final(0x11),
  sglOffset: final(0x16),
  hostIdentifierFormat: final(0x18),
  keepAliveExpired: transient(0x19),
  /** Nothing is wrong with the command; the controller cannot do it now. */
  interrupted: transient(0x21),
  transport: transient(0x22),
  lbaRange: final(0x80),
  capacity: final(0x81),
  notReady: transient(0x82),
  /** The reservation of another host refuses the command. */
  reservationConflict: final(0x83),
  invalidQueue: final(0x101),
  tooManyEvents: final(0x105),
  invalidLog: final(0x109),
  notChangeable: final(0x10e),
  connectFormat: final(0x180),
  controllerBusy: transient(0x181),
  connectParameters: final(0x182),
  hostNotAllowed: final(0x184),
  authenticationRequired: final(0x191),
  writeFault: transient(0x280),
  readError: transient(0x281),
  compareFailure: final(0x285),
  /** The path has lost the namespace permanently, has lost it for a while, or is about to get or lose it. */
  persistentLoss: transient(0x301),
  inaccessible: transient(0x302),
  accessChange: transient(0x303),
  /** A write command to a namespace that is read-only. */
  readOnly: final(0x182),
} as const satisfies Record<string, Status>;

/** The status field of a completion: phase 0, code, and DNR. */
export const statusField = ({ code, doNotRetry }: Status): number => (code << 1) | (doNotRetry ? 0x8000 : 0);

/** A completion: what the controller answers to a command. */
export interface Completion {
  readonly status: Status;
  /** The command's own result. */
  readonly result?: bigint;
  /** The data for the host. */
  readonly data?: Buffer;
  /** The queue ends when the host has this completion. */
  readonly isLast?: true;
}
