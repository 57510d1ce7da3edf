import { Refusal } from "./errors.ts";

/** Requests of one kind that are served, and how many may be at once: in all, and of one client. */
export class OpenRequests {
  readonly #max: number;
  readonly #maxByClient: number;
  readonly #byClient = new Map<string, number>();
  #count = 0;

  constructor(max: number, maxByClient: number) {
    this.#max = max;
    this.#maxByClient = maxByClient;
  }

  /** Returns what ends the request; calling it again does nothing. @throws Refusal beyond a limit. */
  begin(client: string | undefined): () => void {
    const ofClient = client === undefined ? 0 : (this.#byClient.get(client) ?? 0);
    if (this.#count >= this.#max || ofClient >= this.#maxByClient)
      throw new Refusal("resource_exhausted", "the server is busy", 429, [["retry-after", "1"]]);
    this.#count++;
    if (client !== undefined) this.#byClient.set(client, ofClient + 1);
    let isOpen = true;
    return () => {
      if (!isOpen) return;
      isOpen = false;
      this.#count--;
      if (client !== undefined) this.#endOf(client);
    };
  }

  /** Clients without requests are forgotten. */
  #endOf(client: string): void {
    const left = (this.#byClient.get(client) ?? 0) - 1;
    if (left > 0) this.#byClient.set(client, left);
    else this.#byClient.delete(client);
  }
}
