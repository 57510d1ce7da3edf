/** How much memory a port sets aside for messages, all of it registered once. */
export interface PortLayout {
  /** Longest message in bytes; both sides use the smaller of theirs. */
  readonly slotBytes: number;
  readonly sendSlots: number;
  readonly receiveSlots: number;
}

/**
 * Sixteen KiB hold a hundred small frames, so coalescing pays fully; a body that does not fit is pulled by RMA.
 * 64 + 256 slots are 5 MiB a port.
 */
export const defaultLayout: PortLayout = { slotBytes: 16 * 1024, sendSlots: 64, receiveSlots: 256 };
