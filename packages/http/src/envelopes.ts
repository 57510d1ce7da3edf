/** What gives the chunks of a body: a reader of a web stream is one. */
interface Chunks {
  read(): Promise<{ readonly done: boolean; readonly value?: Uint8Array | undefined }>;
}

/** One message of a stream, with its flags: 1 for a compressed one, 2 for the end. */
export interface Envelope {
  readonly flags: number;
  readonly bytes: Uint8Array;
}

/** Takes Connect's messages out of the chunks of a body: a byte of flags, the length in four bytes, the message. */
export class EnvelopeReader {
  readonly #reader: Chunks | undefined;
  #chunks: Uint8Array[] = [];
  #length = 0;

  constructor(reader: Chunks | undefined) {
    this.#reader = reader;
  }

  /** Whether bytes of a next message have come. After `next` has returned undefined the body has ended within it. */
  get isCut(): boolean {
    return this.#length > 0;
  }

  /** The next message; undefined where the body ends. `onLength` may throw before the message is read. */
  async next(onLength: (bytes: number) => void): Promise<Envelope | undefined> {
    const head = await this.#take(5);
    if (head === undefined) return undefined;
    const length = new DataView(head.buffer, head.byteOffset).getUint32(1);
    onLength(length);
    const bytes = await this.#take(length);
    if (bytes !== undefined) return { flags: head[0] ?? 0, bytes };
    this.#length += head.byteLength;
    return undefined;
  }

  async #take(count: number): Promise<Uint8Array | undefined> {
    while (this.#length < count) {
      const { done, value } = (await this.#reader?.read()) ?? { done: true, value: undefined };
      if (done || value === undefined) return undefined;
      this.#chunks.push(value);
      this.#length += value.byteLength;
    }
    let whole = this.#chunks.length === 1 ? this.#chunks[0] : undefined;
    if (whole === undefined) {
      whole = new Uint8Array(this.#length);
      let at = 0;
      for (const chunk of this.#chunks) {
        whole.set(chunk, at);
        at += chunk.byteLength;
      }
    }
    this.#chunks = [whole.subarray(count)];
    this.#length -= count;
    return whole.subarray(0, count);
  }
}
