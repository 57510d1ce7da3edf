/** Arguments of the addon's `gauge`: what a port holds, and what it has counted since it was opened. */
export const gauges = {
  sends: 0,
  transfers: 1,
  waiting: 2,
  regions: 3,
  addresses: 4,
  receivesUsed: 5,
  mostReceives: 6,
  completions: 7,
  mostCompletions: 8,
  registeredBytes: 9,
  connections: 10,
  turnedAway: 11,
  malformed: 12,
  shed: 13,
} as const;
