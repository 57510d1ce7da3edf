import type { Port } from "../../fabric/port.ts";
import { type CallIdentity, callIdentityBytes, readCallIdentity } from "../../wire/call-identity.ts";
import { frameFlag } from "../../wire/frame.ts";
import type { Metadata } from "../../wire/metadata/metadata.ts";
import { RequestMetadata } from "./request-metadata.ts";

/** What stands before the input of a request. One a session, read for each request in turn. */
export class RequestPrefix {
  identity: CallIdentity | undefined;
  metadata: Metadata | undefined;
  /** Bytes of the body that it takes. */
  bytes = 0;
  readonly #requests = new RequestMetadata();

  /** Reads it from the body that stands at `start` to `end` of the slab. Returns a sentence that names the fault, or "". */
  take(
    { slab, slabView }: Pick<Port, "slab" | "slabView">,
    start: number,
    end: number,
    flags: number,
  ): string {
    this.identity = undefined;
    this.metadata = undefined;
    this.bytes = 0;
    if ((flags & frameFlag.identity) !== 0) {
      const identity = readCallIdentity(slabView, start, end);
      if (typeof identity === "string") return identity;
      // Regions end with their request, so one that carries them cannot stand for another.
      if ((flags & frameFlag.grants) === 0) this.identity = identity;
      this.bytes = callIdentityBytes;
    }
    if ((flags & frameFlag.metadata) !== 0) {
      const metadata = this.#requests.take(slab, slabView, start + this.bytes, end);
      if (typeof metadata === "string") return metadata;
      this.metadata = metadata;
      this.bytes += this.#requests.bytes;
    }
    return "";
  }
}
