// Figures as people read them. What is not known is a dash.

const NONE = "–";
const known = (value) => value !== null && value !== undefined && Number.isFinite(value);
const plain = (digits) => new Intl.NumberFormat("en", { maximumFractionDigits: digits });
const WHOLE = plain(0);
const SMALL = [plain(0), plain(1), plain(2)];
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const count = (value) => (known(value) ? (value < 100000 ? WHOLE : SHORT).format(value) : NONE);

export function rate(value) {
  if (!known(value)) return NONE;
  return value >= 100000 ? SHORT.format(value) : SMALL[value >= 100 ? 0 : value >= 10 ? 1 : 2].format(value);
}

export function seconds(value) {
  if (!known(value)) return NONE;
  if (value < 0.9995) {
    const ms = value * 1000;
    return `${ms < 9.95 && ms > 0 ? ms.toFixed(1) : Math.round(ms)} ms`;
  }
  if (value < 59.95) return `${value.toFixed(value < 9.995 ? 2 : 1)} s`;
  const minutes = Math.round(value / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export const milliseconds = (value) => seconds(known(value) ? value / 1000 : null);

export function dollars(value) {
  if (!known(value)) return NONE;
  if (value === 0) return "$0";
  const size = Math.abs(value);
  if (size >= 100000) return `$${SHORT.format(value)}`;
  if (size >= 0.995) return `$${value.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
  return `$${value.toLocaleString("en", { maximumSignificantDigits: 2, maximumFractionDigits: 10 })}`;
}

export const share = (value, digits = 1) => (known(value) ? `${plain(digits).format(value * 100)}%` : NONE);

export const bytes = (value) => (known(value) ? `${(value / 2 ** 30).toFixed(1)} GiB` : NONE);

/** Time in whole seconds; a clock that was set back makes it no negative one. */
export const lasting = (value) => (value < 99.5 ? `${Math.max(0, Math.round(value))} s` : seconds(value));

export const clock = (at) => new Date(at * 1000).toLocaleTimeString("en-GB");

export const day = (at) =>
  new Date(at * 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;
