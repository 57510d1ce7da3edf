import { type Command, fabrics, fabricsOpcode } from "./command.ts";
import type { Controller } from "./controller.ts";
import { maxTransferBytes } from "./identify.ts";
import { type IoWork, ioWork } from "./io-command.ts";
import { type Status, status } from "./status.ts";

/** What a command of a queue asks for, whatever transport it came by: the work, or the status that it deserves. */
export function workOf(controller: Controller, queueId: number, command: Command): IoWork | Status {
  const { opcode, fabricsType, flags, nsid } = command;
  if (flags >>> 6 !== 1 || (flags & 3) !== 0) return status.invalidField;
  if (opcode === fabricsOpcode && (fabricsType === fabrics.connect || queueId !== 0)) return status.sequence;
  if (queueId === 0) {
    const bytes = controller.bytesOf(command);
    return bytes > maxTransferBytes ? status.invalidField : { bytes, run: () => controller.execute(command) };
  }
  if (!controller.isReady) return status.sequence;
  const namespace = controller.subsystem.namespaces.get(nsid);
  return namespace === undefined ? status.invalidNamespace : ioWork(command, namespace.device);
}
