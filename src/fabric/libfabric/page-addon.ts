import type { NativeError } from "./native-error.ts";

/** The addon's functions for memory of whole pages. */
export interface PageAddon {
  /**
   * Zeroed pages for one buffer. They return to the system when the buffer is collected and no port has it registered.
   * At most 2^32 bytes. With `hugePages` they are 2 MiB long as far as the system has such pages.
   */
  allocate(bytes: number, hugePages: boolean): ArrayBuffer | NativeError;
  /**
   * Detaches a buffer that `allocate` or `mapFile` made, so that its pages return soon and not at collection. False for
   * any other buffer.
   */
  release(buffer: ArrayBuffer): boolean;
  /** Bytes that `allocate` and `mapFile` have mapped and not yet given back, over all threads of the process. */
  allocatedBytes(): number;
}
