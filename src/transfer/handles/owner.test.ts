import { describe, expect, it } from "vitest";
import { IncomingCall, type Outcome } from "../../call/incoming-call.ts";
import type { Port } from "../../fabric/port.ts";
import { GrantedRegions } from "../../memory/granted-regions.ts";
import { Region } from "../../memory/region.ts";
import { RegionCore } from "../../memory/region-core.ts";
import type { Access } from "../../memory/region-kind.ts";
import type { ServedMethod } from "../control/control-method.ts";
import type { PeerLink } from "../control/peer-link.ts";
import { putNotificationMethod } from "../put-notification.ts";
import { explainDenialMethod } from "../transfer-error.ts";
import { checksumMethod } from "../verify-checksum.ts";

const key = 5n;

/**
 * An owner that has lent 64 bytes, and a peer that may send any request. The tests do not rely on the checks of the
 * peer's side.
 */
function lending(access: Access) {
  const bytes = new Uint8Array(64);
  const region = new Region(new RegionCore({ onRegionReleased() {} }, [bytes], access));
  const lent = new GrantedRegions({ immediateBytes: 0 } as Port, 0);
  lent.add(key, region);
  const ask = (method: ServedMethod, input: readonly unknown[]): Promise<string> =>
    new Promise((resolve) => {
      const answer = (_: IncomingCall, { error }: Outcome) => resolve(error?.code ?? "ok");
      method.serve(
        new IncomingCall({ takeOutcome: answer }, 1, 0),
        { grants: lent } as unknown as PeerLink,
        input,
      );
    });
  return { ask };
}

describe("the owner of lent memory", () => {
  it.each([
    ["a sum of everything", checksumMethod, [key, [0, 64]], "ok"],
    ["a sum of one byte more", checksumMethod, [key, [1, 64]], "out_of_range"],
    ["a sum of a range beyond it", checksumMethod, [key, [0, 8, 65, 0]], "out_of_range"],
    ["a sum of an offset alone", checksumMethod, [key, [0]], "invalid_argument"],
    ["a sum of too many ranges", checksumMethod, [key, new Array(2050).fill(0)], "invalid_argument"],
    ["a put notification of everything", putNotificationMethod, [key, 1, 64], "ok"],
    ["a put notification of more than there is", putNotificationMethod, [key, 1, 65], "out_of_range"],
    ["why everything is refused", explainDenialMethod, [key, "write", 0, 64], "ok"],
    ["why more is refused", explainDenialMethod, [key, "write", 1, 64], "out_of_range"],
    ["another key", checksumMethod, [key + 1n, [0, 64]], "not_found"],
  ] as const)("asked for %s answers what is right", async (_, method, input, code) => {
    expect(await lending("read_write").ask(method, input)).toBe(code);
  });

  it("takes no word of a put into what was lent for reading", async () => {
    const { ask } = lending("read");
    expect(await ask(putNotificationMethod, [key, 1, 8])).toBe("permission_denied");
    expect(await ask(explainDenialMethod, [key, "write", 0, 8])).toBe("permission_denied");
  });
});
