// What the pages use of the vendored module.

export type Ref<T> = { current: T };
export function html(parts: TemplateStringsArray, ...values: unknown[]): any;
export function render(what: any, where: Element): void;
export function useState<T>(first: T): [T, (next: T | ((known: T) => T)) => void];
export function useReducer(reduce: (state: number, action: any) => number, first: number): [number, (action: any) => void];
export function useEffect(effect: () => void | (() => void) | undefined, inputs?: unknown[]): void;
export function useLayoutEffect(effect: () => void | (() => void) | undefined, inputs?: unknown[]): void;
export function useRef<T>(first: T): Ref<T>;
export function useMemo<T>(make: () => T, inputs: unknown[]): T;
