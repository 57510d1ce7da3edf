import { bytes, oneWay, service } from "cinnabar/standard";
import { maxMessageBytes } from "../detector/codec.ts";
import { tagBytes } from "./seal.ts";

/** What detectors send each other over a fabric: the bytes that they send as datagrams elsewhere. */
export const Packets = service("cinnabar.detector.v1", {
  packet: oneWay({ input: bytes({ maxBytes: maxMessageBytes + tagBytes }) }),
});
