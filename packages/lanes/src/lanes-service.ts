import { type Schema, serverStream, service } from "cinnabar/standard";

/** A lane as its dispatcher lists it. */
export interface ListedLane {
  /** Its addresses, in the order of the dispatcher's. */
  readonly urls: readonly string[];
  /** The incarnation of its engine; 0 while no engine runs. */
  readonly incarnation: bigint;
}

/** What a dispatcher says of its lanes. */
export interface ListedLanes {
  /** Where the dispatcher listens. */
  readonly urls: readonly string[];
  /** By number. */
  readonly lanes: readonly ListedLane[];
}

/** The most lanes of a dispatcher. */
export const mostLanes = 256;
const mostUrls = 64;
const mostUrlLength = 320;

/** What a dispatcher serves beside its module: where its lanes are now, and again whenever that changes. */
export const LaneDirectory = service("cinnabar.lanes.v1", {
  watch: serverStream({ output: listedLanes(), idleTimeoutMs: false }),
});

/** Nothing from the wire is trusted: every list is bounded. */
function listedLanes(): Schema<ListedLanes> {
  return {
    "~standard": {
      version: 1,
      vendor: "cinnabar-lanes",
      validate: (value) => {
        const { urls, lanes } = (value ?? {}) as Partial<ListedLanes>;
        if (!areUrls(urls)) return { issues: [{ message: "expected the URLs of the dispatcher" }] };
        if (!Array.isArray(lanes) || lanes.length > mostLanes || !lanes.every(isLane))
          return { issues: [{ message: `expected at most ${mostLanes} lanes with URLs and incarnations` }] };
        return { value: { urls, lanes } };
      },
    },
  };
}

function areUrls(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.length <= mostUrls && value.every(isUrl);
}

const isUrl = (value: unknown): value is string =>
  typeof value === "string" && value.length > 0 && value.length <= mostUrlLength;

function isLane(value: unknown): value is ListedLane {
  const { urls, incarnation } = (value ?? {}) as Partial<ListedLane>;
  return areUrls(urls) && typeof incarnation === "bigint" && BigInt.asUintN(64, incarnation) === incarnation;
}
