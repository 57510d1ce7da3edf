/**
 * Why a cold native function failed; `code` is libfabric's positive error number, 0 where the failure is not
 * libfabric's.
 */
export interface NativeError {
  readonly failed: true;
  /**
   * The operation that failed, in the field's terms: "dlopen", "fi_getinfo", "fi_endpoint", "fi_enable", "bind
   * doorbell", …
   */
  readonly op: string;
  readonly code: number;
  /** libfabric's or the system's short name or text for `code`. */
  readonly name: string;
  /** One sentence, with the names and numbers that matter. */
  readonly message: string;
}
