import { describe, expect, it } from "vitest";
import { sendFailure } from "./end-reasons.ts";

describe("sendFailure", () => {
  const peer = { peerName: "shm://files", port: { provider: "shm", agent: "shm/4" }, transferRefused: false };

  it("names both layouts of shared memory where they differ", () => {
    const error = sendFailure(peer, 93, 3);
    expect([error.code, error.plainMessage]).toEqual([
      "failed_precondition",
      "shm://files shares memory as shm/3, this process as shm/4: use one version of cinnabar",
    ]);
  });
});
