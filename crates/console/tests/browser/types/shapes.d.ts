// Shapes of what the console's API answers.

interface Stats {
  node: string;
  cluster: string;
  version: string;
  commit: string;
  at_ms: number;
  uptime_s: number;
  ready: boolean;
  reason: string | null;
  peers: string[];
  metrics: Record<string, number | (string | number)[][]>;
  labels: Record<string, string[]>;
  bounds: number[];
  histograms: Record<string, { labels: string[]; values: any[][] }>;
}

interface FrameNode {
  url: string;
  state: "up" | "silent" | "unauthorized" | "foreign" | "old" | "not-kvorum";
  why: string | null;
  stats: Stats | null;
  series: Record<string, number | null>;
}

interface DevNode {
  number: number;
  url: string;
  state: "running" | "paused" | "dead";
  slow_ms: number;
  skew_s: number;
}

interface CanaryCounts {
  writes: number;
  reads: number;
  lost: number;
  stale: number;
  failed: number;
  available: boolean;
}

interface Frame {
  at_ms: number;
  nodes: FrameNode[];
  dev: { nodes: DevNode[] } | null;
  canary: CanaryCounts | null;
}

interface Session {
  level: "read" | "write" | "lab";
  mode: "dev" | "console" | "admin";
  nodes: string[];
  version: string;
}

interface Series {
  id: string;
  title: string;
  unit: string;
  promql: string;
}

interface HistoryAnswer {
  end_ms: number;
  step_ms: number;
  nodes: { url: string; series: Record<string, (number | null)[]> }[];
}

/** The layout, its preference lists as bytes. */
interface Placement {
  layout_version: number;
  partitions: number;
  from: number;
  nodes: { url: string; zone: string | null; weight: number }[];
  preference: Uint8Array;
}

interface Located {
  key: string;
  hash: string;
  partition: number;
  from: number;
  replicas: string[];
}

interface ReceiptLine {
  node: string;
  outcome: string;
  version: string | null;
  ms: number | null;
}

interface SlowRequest {
  at_ms: number;
  ms: number;
  operation: string;
  hash: string | null;
  partition: number | null;
  class: string;
  ack: number;
  from: number;
  status: number;
  queue_ms: number | null;
  commit_ms: number | null;
  peers_ms: number | null;
  receipt: ReceiptLine[];
}

interface HotKey {
  key: string | null;
  key_base64: string | null;
  hash: string;
  partition: number;
  count: number;
  error: number;
}

interface HotAnswer {
  window_s: number;
  at_ms: number;
  sample: number;
  keys: HotKey[];
  partitions: string;
}

interface ScanRecord {
  key: string;
  binary: boolean;
  etag: string;
  type: string;
  expires: number | null;
  size: number;
  value: string | null;
}

interface Job {
  id: string | number;
  kind: string;
  state: "running" | "done" | "failed";
  progress: Record<string, unknown> | null;
  error: string | null;
  open: string | null;
}

