import type { AnyService } from "cinnabar/standard";
import type { SendOptions } from "./below.ts";
import type { Envelope, Reply } from "./envelope.ts";
import type { Reached } from "./members.ts";

/** Sends envelopes to members, with one client for each member and service. */
export class Carrier {
  readonly #clients = new WeakMap<Reached, Map<AnyService, Record<string, unknown>>>();

  /** `offers`: how much of its region the sender has, of a collective with one. */
  send(
    to: Reached,
    service: AnyService,
    name: string,
    envelope: Envelope,
    options: SendOptions,
    offers: AsyncIterable<number> | undefined,
  ): Promise<Reply> {
    const send = this.#clientOf(to, service)[name] as (...given: unknown[]) => Promise<Reply>;
    return offers === undefined ? send(envelope, options) : send(envelope, offers, options);
  }

  #clientOf(to: Reached, service: AnyService): Record<string, unknown> {
    let clients = this.#clients.get(to);
    if (clients === undefined) {
      clients = new Map();
      this.#clients.set(to, clients);
    }
    let client = clients.get(service);
    if (client === undefined) {
      // The call has its own time and its own end: it outlives the request that brought it here.
      client = to.client(service, { inherit: false }) as unknown as Record<string, unknown>;
      clients.set(service, client);
    }
    return client;
  }
}
