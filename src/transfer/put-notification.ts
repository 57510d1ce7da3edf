import { maxPutNotifications } from "../memory/put-notification.ts";
import { asCount, builtinMethod, fail, isUint32, isUint64 } from "./control/control-method.ts";

interface PutNotificationInput {
  readonly key: bigint;
  readonly n: number;
  readonly bytes: number;
}

/** Serves `putNotification` at the owner. */
export const putNotificationMethod = builtinMethod<PutNotificationInput>(
  "putNotification",
  ([key, n, length]) => {
    const bytes = asCount(length);
    const fits = isUint64(key) && isUint32(n) && bytes !== undefined;
    return fits ? { key, n, bytes } : undefined;
  },
  ({ key, n, bytes }, call, peer) => {
    const region = peer.grants.check(key, "write", 0, bytes);
    if (region.notify({ n, bytes })) call.settle({ value: undefined });
    else if (region.disposed)
      fail(call, "failed_precondition", "the region has been disposed; its put notifications have no reader");
    else
      fail(
        call,
        "resource_exhausted",
        `${maxPutNotifications} put notifications of the region wait for a reader; that is the limit`,
      );
  },
);
