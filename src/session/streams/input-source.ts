import type { RpcError } from "../../base/errors/rpc-error.ts";
import type { ItemSender } from "./item-sender.ts";

/** What sends the inputs of a stream: a pump from an iterable, or a writer. */
export interface InputSource {
  attach(sender: ItemSender): void;
  detach(): void;
  /** The stream is over: `error` unless it ended well. */
  close(error: RpcError | undefined): void;
}
