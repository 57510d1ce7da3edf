import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { onTestFinished } from "vitest";

/** Files of sysfs or /proc in a new folder, which is removed when the test ends. */
export function fakeSystem(files: Readonly<Record<string, string>>): string {
  const root = mkdtempSync(join(tmpdir(), "cinnabar-system-"));
  onTestFinished(() => rmSync(root, { recursive: true }));
  for (const [path, text] of Object.entries(files)) {
    const file = join(root, path);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, text);
  }
  return root;
}

/** A RoCE device, an iWARP device and an InfiniBand adapter of two ports, as Linux 6.12 shows them. */
export function fakeRdmaSystem(): string {
  return fakeSystem({
    ...device("rxe0", "1: CA", "a06a:5bff:fec4:8cc3"),
    ...port("rxe0", 1, "Ethernet", [
      ["fe80:0000:0000:0000:a06a:5bff:fec4:8cc3", "RoCE v2", "eth0"],
      ["0000:0000:0000:0000:0000:ffff:0a4d:0101", "RoCE v2", "eth0"],
      ["0000:0000:0000:0000:0000:0000:0000:0000", "", ""],
    ]),
    ...device("siw0", "4: RNIC", "bcd4:b1ff:feb6:bf35"),
    ...port("siw0", 1, "Ethernet", [["bed4:b1b6:bf35:0000:0000:0000:0000:0000", "IB/RoCE v1", "eth1"]]),
    ...device("mlx5_0", "1: CA", "506b:4b03:00c1:9b2a"),
    ...port("mlx5_0", 1, "InfiniBand", [["fe80:0000:0000:0000:506b:4b03:00c1:9b2a", "IB/RoCE v1", ""]]),
    ...port("mlx5_0", 2, "InfiniBand", [], "1: DOWN", "3: Disabled"),
    "class/net/eth0/mtu": "1500\n",
    "class/net/eth1/mtu": "9000\n",
  });
}

function device(name: string, nodeType: string, guid: string): Record<string, string> {
  const folder = `class/infiniband/${name}`;
  return {
    [`${folder}/node_type`]: `${nodeType}\n`,
    [`${folder}/fw_ver`]: "\n",
    [`${folder}/node_guid`]: `${guid}\n`,
  };
}

function port(
  name: string,
  number: number,
  linkLayer: string,
  gids: readonly (readonly [gid: string, type: string, netdev: string])[],
  state = "4: ACTIVE",
  physicalState = "5: LinkUp",
): Record<string, string> {
  const folder = `class/infiniband/${name}/ports/${number}`;
  const files: Record<string, string> = {
    [`${folder}/state`]: `${state}\n`,
    [`${folder}/phys_state`]: `${physicalState}\n`,
    [`${folder}/link_layer`]: `${linkLayer}\n`,
    [`${folder}/rate`]: "10 Gb/sec (1X FDR10)\n",
  };
  for (const [index, [gid, type, netdev]] of gids.entries()) {
    files[`${folder}/gids/${index}`] = `${gid}\n`;
    // For an entry without a type the kernel fails with EINVAL; a missing file fails as well.
    if (type !== "") files[`${folder}/gid_attrs/types/${index}`] = `${type}\n`;
    if (netdev !== "") files[`${folder}/gid_attrs/ndevs/${index}`] = `${netdev}\n`;
  }
  return files;
}
