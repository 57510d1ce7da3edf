import { maxNotices } from "../bulk/notices.ts";
import type { RemoteRegion } from "../bulk/remote-region.ts";
import type { IncomingCall } from "../call/incoming-call.ts";
import type { Session } from "../session/session.ts";
import { builtin } from "../wire/builtin.ts";
import { askInCall } from "./ask-in-call.ts";
import { asCount, builtinMethod, fail, isUint32, isUint64 } from "./builtin-method.ts";
import { lentTo } from "./lent.ts";

/** Tells the owner that a put of so many bytes has landed. Resolves when it has the word. */
export async function notify(
  call: IncomingCall,
  session: Session,
  remote: RemoteRegion,
  n: number,
  bytes: number,
): Promise<void> {
  await askInCall(call, session, builtin.notice, [remote.loanKey, n, bytes]);
}

interface NoticeInput {
  readonly key: bigint;
  readonly n: number;
  readonly bytes: number;
}

/** Serves `notice`: the owner's side. */
export const noticeMethod = builtinMethod<NoticeInput>(
  "notice",
  ([key, n, length]) => {
    const bytes = asCount(length);
    const fits = isUint64(key) && isUint32(n) && bytes !== undefined;
    return fits ? { key, n, bytes } : undefined;
  },
  ({ key, n, bytes }, call, session) => {
    const region = lentTo(session, key, "write", 0, bytes);
    if (region.notify({ n, bytes })) call.settle({ value: undefined });
    else if (region.disposed)
      fail(call, "failed_precondition", "the region has been disposed, nobody reads its notifications");
    else
      fail(
        call,
        "resource_exhausted",
        `${maxNotices} notifications of the region wait for somebody to read them`,
      );
  },
);
