import type { NativeError } from "./native-error.ts";

/** The addon's functions for memory of whole pages. */
export interface PageAddon {
  /**
   * Pages of zeros of their own, given back to the system when the buffer is collected and no port has it registered
   * any more. At most 2^32 bytes. With `hugePages` they are 2 MiB long as far as the system has such.
   */
  allocate(bytes: number, hugePages: boolean): ArrayBuffer | NativeError;
  /**
   * Detaches a buffer that `allocate` or `mapFile` made, so that its pages go soon and not when it is collected. False
   * for any other buffer.
   */
  release(buffer: ArrayBuffer): boolean;
  /** Bytes that `allocate` and `mapFile` have mapped and not yet given back, over all threads of the process. */
  allocatedBytes(): number;
}
