import type { CallOptions, ItemSource } from "cinnabar/standard";

/** The options of one call of a `CinnabarClient`, beside its data. */
export interface RecordOptions
  extends Pick<CallOptions, "timeoutMs" | "metadata" | "priority" | "retry" | "onHeaders" | "onTrailers"> {
  /** The input that opens a client stream or a duplex stream, whose data are its items. Default: none. */
  readonly input?: unknown;
}

/** Data with the options of their call, made by `cinnabarRecord`. */
export class CinnabarRecord<T = unknown> {
  readonly data: T | ItemSource<T>;
  readonly options: RecordOptions;

  /** @internal */
  constructor(data: T | ItemSource<T>, options: RecordOptions) {
    this.data = data;
    this.options = options;
  }
}

/**
 * Data with the options of one call, as the record builders of Nest's other transports.
 */
export function cinnabarRecord<T>(data: T, options: RecordOptions): CinnabarRecord<T> {
  return new CinnabarRecord(data, options);
}
