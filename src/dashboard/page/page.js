// The page: asks for the runs every two seconds, shows a row for each, the curves of those that are ticked, and the
// details of the one in focus. Text of files is set as textContent alone.
'use strict';

const kStateLook = {running: 'good', starting: 'plain', ended: 'plain', stalled: 'bad', recovering: 'bad', waiting: 'bad', stopped: 'fair', reading: ''};
const kBandLook = {'above the measured peak': 'fair', excellent: 'good', good: 'good', fair: 'fair', poor: 'bad'};

function valueCell(row, key, value, text, className = 'num') {
  const cell = row.insertCell();
  cell.className = className;
  cell.dataset.key = key;
  if (value !== null && value !== undefined) { cell.dataset.value = value; cell.title = value; }
  cell.append(text);
  return cell;
}

function runRow(run) {
  const row = make('tr', run.name === view.focus ? 'focus' : '');
  row.dataset.run = run.name;
  const tick = make('input');
  tick.type = 'checkbox';
  tick.checked = view.shown.has(run.name);
  tick.addEventListener('click', (event) => {
    event.stopPropagation();
    tick.checked ? view.shown.add(run.name) : view.shown.delete(run.name);
    refreshCurves(true);
  });
  row.insertCell().append(tick);
  const name = row.insertCell();
  const swatch = make('span', 'swatch');
  swatch.style.background = colorOf(run.name);
  const label = make('span', 'name', run.name);
  name.append(swatch, label);
  const what = [run.layout, run.parameters ? count(run.parameters) + ' parameters' : '', run.ranks ? `${run.ranks} rank${run.ranks === 1 ? '' : 's'}` : '', run.device, run.precision];
  name.append(make('div', 'what', run.problem || what.filter(Boolean).join(' · ')));
  const state = row.insertCell();
  state.append(make('span', 'pill ' + kStateLook[run.state], run.state));
  state.dataset.key = 'state';
  if (run.state === 'stalled') state.append(make('div', 'what', `no step for ${duration(run.idle_seconds)}`));
  const progress = valueCell(row, 'step', run.step, run.step < 0 ? '–' : `${run.step.toLocaleString('en-US')}${run.steps ? ' / ' + run.steps.toLocaleString('en-US') : ''} steps`, '');
  if (run.steps) {
    const bar = make('div', 'bar'), done = make('div');
    done.style.width = Math.min(100, 100 * Math.max(0, run.step) / run.steps) + '%';
    bar.append(done);
    progress.append(bar);
  }
  valueCell(row, 'loss', run.loss, digits(run.loss), 'num main');
  valueCell(row, 'eval_loss', run.eval_loss, digits(run.eval_loss));
  valueCell(row, 'tokens_per_s', run.tokens_per_s, count(run.tokens_per_s));
  const mfu = valueCell(row, 'mfu', run.run_mfu, percent(run.run_mfu) + ' ');
  if (run.band) mfu.append(make('span', 'pill ' + kBandLook[run.band], run.band));
  if (run.mfu_6n !== null) mfu.title = `all steps: with attention ${percent(run.run_mfu)}, 6N ${percent(run.mfu_6n)}; the last step: ${percent(run.mfu)}`;
  valueCell(row, 'step_ms', run.step_ms, milliseconds(run.step_ms));
  valueCell(row, 'eta', run.seconds_left, run.state === 'ended' ? 'done' : duration(run.seconds_left));
  row.addEventListener('click', () => focusOn(run.name));
  return row;
}

function showRuns() {
  const body = byId('runs').tBodies[0];
  body.replaceChildren(...view.runs.map(runRow));
  byId('runs').hidden = view.runs.length === 0;
  byId('no-runs').hidden = view.runs.length > 0;
  byId('folder').textContent = view.folder;
  byId('focus-title').textContent = view.focus ?? '';
  const focus = view.runs.find((run) => run.name === view.focus);
  byId('launch').hidden = !focus;
  if (focus) showLaunch(focus.launch);
}

// What keeps the run going and what its faults have cost; a run without launch has a goodput alone.
function showLaunch(launch) {
  const section = byId('launch');
  section.hidden = !launch.launched && launch.goodput === null && launch.fault === null;
  const rows = [];
  if (launch.launched) {
    rows.push(['epoch', `${launch.epoch}, ${launch.restarts} restart${launch.restarts === 1 ? '' : 's'}${launch.layout ? ', ' + launch.layout : ''}${launch.agents ? '' : '; no agent is at work'}`]);
    for (const host of launch.hosts) rows.push(['host', `${host.name}: ${host.role}, ${host.ranks.length} rank${host.ranks.length === 1 ? '' : 's'}`]);
  }
  if (launch.goodput !== null) {
    const parts = Object.entries(launch.goodput.parts).filter(([, seconds]) => seconds > 1e-3 * launch.goodput.seconds);
    rows.push(['goodput', `${percent(launch.goodput.share)} of ${duration(launch.goodput.seconds)}: ` + parts.map(([part, seconds]) => `${part.replace('_', '-')} ${percent(seconds / launch.goodput.seconds)}`).join(', ')]);
  }
  if (launch.fault !== null) {
    const when = launch.fault.time === null ? '' : new Date(1000 * launch.fault.time).toLocaleTimeString('en-GB') + ', ';
    const cost = launch.fault.cost_seconds === null ? '' : `cost ${launch.fault.cost_seconds.toFixed(1)} s, `;
    rows.push(['last fault', `${when}${cost}after step ${launch.fault.step}: ${launch.fault.text}`]);
  }
  if (launch.slow_ranks.length > 0) rows.push(['slow', `rank${launch.slow_ranks.length === 1 ? '' : 's'} ${launch.slow_ranks.join(', ')}`]);
  section.querySelector('tbody').replaceChildren(...rows.map(([name, text]) => {
    const row = make('tr');
    row.dataset.key = name;
    row.insertCell().textContent = name;
    row.insertCell().textContent = text;
    return row;
  }));
}

function showFindings(findings) {
  const section = byId('findings');
  section.hidden = false;
  const body = section.querySelector('.body');
  if (findings.findings.length === 0) {
    body.replaceChildren(make('div', 'healthy', findings.healthy));
    return;
  }
  body.replaceChildren(...findings.findings.map((finding) => {
    const box = make('div', 'finding');
    const line = make('div', 'summary');
    line.append(make('span', 'pill ' + (finding.severity === 'memory' ? 'plain' : finding.severity === 'slow' ? 'fair' : 'bad'), finding.severity), ' ', finding.summary);
    const list = (items, className) => {
      const all = make('ul', className);
      all.append(...items.map((item) => make('li', '', item)));
      return all;
    };
    box.append(line, list(finding.evidence, 'evidence'), list(finding.remedies.map((r) => '→ ' + r), 'remedies'));
    return box;
  }));
}

function showEvents(events) {
  const section = byId('events');
  section.querySelector('table').hidden = events.length === 0;
  section.querySelector('.note').hidden = events.length > 0;
  const look = {fault: 'bad', stall: 'bad', slow: 'bad', slow_end: 'plain', decision: 'fair', restart: 'good', saved: 'good', save: '', evaluation: 'plain', start: 'plain', end: 'plain'};
  section.querySelector('tbody').replaceChildren(...events.map((event) => {
    const row = make('tr');
    const when = event.time === null ? '–' : new Date(1000 * event.time).toLocaleTimeString('en-GB');
    const time = row.insertCell();
    time.textContent = when;
    if (event.error !== null) time.title = `± ${milliseconds(1000 * event.error)}`;
    row.insertCell().append(make('span', 'pill ' + (look[event.kind] ?? ''), event.kind));
    for (const value of [event.step < 0 ? '' : event.step.toLocaleString('en-US'), event.rank < 0 ? '' : event.rank, event.seconds === null ? '' : milliseconds(1000 * event.seconds)]) {
      const cell = row.insertCell();
      cell.className = 'num';
      cell.textContent = value;
    }
    row.insertCell().textContent = event.text;
    return row;
  }));
}

async function refreshCurves(force = false) {
  const wanted = view.runs.filter((run) => view.shown.has(run.name) && run.step >= 0);
  const key = JSON.stringify([wanted.map((run) => [run.name, run.step]), view.zoom]);
  if (key === view.seen.curves && !force) return;
  view.seen.curves = key;
  const range = view.zoom && view.axis === 'step' ? {from: Math.floor(view.zoom[0]), to: Math.ceil(view.zoom[1])} : {};
  const answers = await Promise.all(wanted.map((run) => ask('curves', {run: run.name, ...range})));
  curves.show(wanted.map((run, i) => ({name: run.name, curves: answers[i]})));
}

async function refreshDetails(force = false) {
  const run = view.runs.find((one) => one.name === view.focus);
  if (!run || run.state === 'reading') return;
  const key = JSON.stringify([run.name, run.step, run.state]);
  const now = Date.now();
  // A run that does not step may still stall, save or fail: look again now and then.
  if (key === view.seen.details && !force && now - view.seen.detailsAt < 5 * kPoll) return;
  view.seen.details = key;
  view.seen.detailsAt = now;
  const name = run.name;
  const [times, memory, events, findings] = await Promise.all(['times', 'memory', 'events', 'findings'].map((what) => ask(what, {run: name})));
  if (name !== view.focus) return;
  bars.showTimes(times);
  bars.showMemory(memory);
  showEvents(events);
  showFindings(findings);
  await timeline.refresh(name);
}

function focusOn(name) {
  view.focus = name;
  view.shown.add(name);
  showRuns();
  timeline.reset();
  refreshCurves(true).catch(() => {});
  refreshDetails(true).catch(() => {});
}

async function poll() {
  const live = byId('live');
  try {
    if (!document.hidden) {
      const answer = await ask('runs');
      view.runs = answer.runs;
      view.folder = answer.folder;
      for (const run of view.runs) colorOf(run.name);
      if (!view.runs.some((run) => run.name === view.focus)) {
        // The one that stepped last.
        const known = view.runs.filter((run) => run.idle_seconds !== null).sort((a, b) => a.idle_seconds - b.idle_seconds);
        const newest = known[0] ?? view.runs[0];
        view.focus = newest ? newest.name : null;
        if (view.shown.size === 0) for (const run of view.runs.slice(0, 6)) view.shown.add(run.name);
      }
      showRuns();
      await refreshCurves();
      await refreshDetails();
      live.textContent = 'live';
      live.className = 'pill good';
      document.body.dataset.polls = Number(document.body.dataset.polls ?? 0) + 1;
    }
  } catch (problem) {
    live.textContent = 'no answer';
    live.className = 'pill bad';
    live.title = String(problem);
    view.seen = {};
  }
  setTimeout(poll, kPoll);
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  localStorage.setItem('lockstep-theme', theme);
  curves.redraw();
  bars.redraw();
  timeline.redraw();
}

byId('smoothing').addEventListener('input', (event) => {
  view.smoothing = Number(event.target.value);
  byId('smoothing-value').textContent = view.smoothing.toFixed(2);
  curves.redraw();
});
byId('log').addEventListener('change', (event) => { view.log = event.target.checked; curves.redraw(); });
byId('axis').addEventListener('change', (event) => { view.axis = event.target.value; view.zoom = null; refreshCurves(true).catch(() => {}); });
byId('theme').addEventListener('click', () => setTheme(document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark'));
addEventListener('resize', () => { bars.redraw(); timeline.redraw(); });

setTheme(localStorage.getItem('lockstep-theme') ?? (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light'));
poll();
