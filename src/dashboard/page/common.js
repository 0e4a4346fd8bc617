// What every part of the page uses: its state, elements, numbers as text, questions to the server.
'use strict';

const view = {
  runs: [], shown: new Set(), focus: null, folder: '', colors: new Map(),
  smoothing: 0.6, log: false, axis: 'step', zoom: null, seen: {},
};
const kPoll = 2000;
const byId = (id) => document.getElementById(id);

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

// Numbers for people; the exact one is kept in data-value.
function digits(value, places = 4) {
  if (value === null || value === undefined || !isFinite(value)) return '–';
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2);
  return size >= 1000 ? Math.round(value).toLocaleString('en-US') : value.toPrecision(places);
}
function count(value) {
  if (value === null || value === undefined || !isFinite(value)) return '–';
  for (const [unit, size] of [['T', 1e12], ['B', 1e9], ['M', 1e6], ['k', 1e3]])
    if (Math.abs(value) >= size) return (value / size).toPrecision(3) + unit;
  return Number.isInteger(value) ? String(value) : value.toPrecision(3);
}
function bytes(value) {
  if (value === null || value === undefined) return '–';
  for (const [unit, size] of [['TiB', 2 ** 40], ['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10]])
    if (value >= size) return (value / size).toPrecision(3) + ' ' + unit;
  return value + ' B';
}
function duration(seconds) {
  if (seconds === null || seconds === undefined || !isFinite(seconds)) return '–';
  const whole = Math.round(seconds), h = Math.floor(whole / 3600), m = Math.floor(whole / 60) % 60, s = whole % 60;
  const two = (n) => String(n).padStart(2, '0');
  if (h >= 48) return `${Math.floor(h / 24)} d ${h % 24} h`;
  return h > 0 ? `${h}:${two(m)}:${two(s)}` : `${m}:${two(s)}`;
}
function milliseconds(ms) {
  if (ms === null || ms === undefined) return '–';
  if (ms === 0) return '0';
  return ms >= 10000 ? (ms / 1000).toPrecision(4) + ' s' : ms >= 1 ? ms.toPrecision(4) + ' ms' : (ms * 1000).toPrecision(3) + ' µs';
}
const percent = (share) => share === null || share === undefined ? '–' : (100 * share).toFixed(1) + ' %';

// Twelve hues apart from each other, readable on white and on black.
const kColors = ['#3b7ddd', '#e07b39', '#2fa36b', '#b05cc6', '#d1495b', '#1b9aaa', '#a88a1f', '#7d6bdb', '#d65f9e', '#5c8a2f', '#8c6d5a', '#6b7c93'];
function colorOf(name) {
  if (!view.colors.has(name)) view.colors.set(name, kColors[view.colors.size % kColors.length]);
  return view.colors.get(name);
}
const styleOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

async function ask(what, parameters = {}) {
  const query = new URLSearchParams(parameters).toString();
  const answer = await fetch(`/api/${what}${query ? '?' + query : ''}`, {cache: 'no-store'});
  if (answer.status === 401) location.assign('/login');
  if (!answer.ok) throw new Error(`${what}: ${answer.status}`);
  return answer.json();
}

function tip(event, text) {
  const box = byId('tip');
  box.hidden = !text;
  if (!text) return;
  box.textContent = text;
  box.style.left = Math.min(event.clientX + 14, innerWidth - box.offsetWidth - 8) + 'px';
  box.style.top = Math.min(event.clientY + 14, innerHeight - box.offsetHeight - 8) + 'px';
}
