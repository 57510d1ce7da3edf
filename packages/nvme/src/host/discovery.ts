import type { Association } from "./association.ts";

/** A record of a discovery service: one address of a subsystem. */
export interface DiscoveredSubsystem {
  readonly nqn: string;
  readonly transport: "tcp" | "rdma" | "other";
  /** The address, and its service: for TCP the port. */
  readonly host: string;
  readonly service: string;
}

const recordBytes = 1024;
/** The limit of records. A service that lists more is not read further. */
const maxRecords = 4096;
/** SUBTYPE of a subsystem with namespaces. */
const nvmSubsystem = 2;

/** Reads the log of a discovery service. @throws Error for a malformed log. */
export async function readDiscoveryLog(
  association: Pick<Association, "log">,
): Promise<readonly DiscoveredSubsystem[]> {
  const header = await association.log(0x70, 0, recordBytes);
  const count = Number(header.readBigUInt64LE(8));
  if (count > maxRecords) throw new Error(`the discovery service lists ${count} subsystems`);
  const records: DiscoveredSubsystem[] = [];
  for (let index = 0; index < count; index++) {
    const record = await association.log(0x70, recordBytes * (index + 1), recordBytes);
    // Services may list themselves, and other services.
    if (record.readUInt8(2) === nvmSubsystem) records.push(recordOf(record));
  }
  return records;
}

function recordOf(record: Buffer): DiscoveredSubsystem {
  const textAt = (at: number, bytes: number) =>
    (record.toString("utf8", at, at + bytes).split("\0")[0] ?? "").trim();
  const transports: Record<number, DiscoveredSubsystem["transport"]> = { 1: "rdma", 3: "tcp" };
  return {
    nqn: textAt(256, 256),
    transport: transports[record.readUInt8(0)] ?? "other",
    host: textAt(512, 256),
    service: textAt(32, 32),
  };
}
