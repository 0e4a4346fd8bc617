// A traced step over all ranks, with zoom, and the pipeline's measured schedule beside the ideal one.
'use strict';

const timeline = (() => {
  const kLeft = 62;
  let run = null, answer = null, schedule = null, from = 0, to = -1, step = -1, areas = [], asked = 0;
  const section = () => byId('timeline');

  // By the phase in the name; what waits is of the kind, whatever it waits for.
  const kLooks = [
    [/backward weight/, '#1b9aaa', 'backward, weights'], [/backward/, '#2fa36b', 'backward'], [/forward/, '#3b7ddd', 'forward'],
    [/update|norm$|optimizer|publish/, '#b05cc6', 'optimizer'],
  ];
  function lookOf(kind, name) {
    if (kind === 'wait') return ['#e07b39', 'wait'];
    if (kind !== 'compute') return ['#d65f9e', kind];
    const found = kLooks.find(([pattern]) => pattern.test(name));
    return found ? found.slice(1) : ['#9aa7b8', 'other'];
  }
  const microseconds = (us) => milliseconds(us / 1000);

  async function load() {
    if (!run) return;
    const mine = ++asked, box = section();
    const wanted = {run, step, from, to, first: box.querySelector('.first').value || 0, ranks: box.querySelector('.count').value || 32};
    const got = await ask('timeline', wanted);
    if (mine !== asked || wanted.run !== run) return;
    answer = got;
    draw();
  }
  let timer = null;
  function loadSoon() {
    clearTimeout(timer);
    timer = setTimeout(() => load().catch(() => {}), 120);
  }

  function draw() {
    const box = section(), note = box.querySelector('.note'), plot = box.querySelector('.plot');
    const there = answer && !answer.problem;
    for (const part of ['.tools', '.legend', '.plot']) box.querySelector(part).hidden = !there;
    note.textContent = !answer ? '' : answer.problem ? answer.problem :
        `${answer.layout ? answer.layout + ': ' : ''}step ${answer.step.toLocaleString('en-US')} took ${milliseconds(1000 * answer.seconds)} on ${answer.ranks} rank${answer.ranks === 1 ? '' : 's'}.`;
    if (!there) return;
    const select = box.querySelector('.step');
    const steps = answer.steps.slice(-200);
    if (select.dataset.steps !== String(steps)) {
      select.dataset.steps = String(steps);
      select.replaceChildren(...steps.map((n) => new Option(n, n)));
    }
    select.value = answer.step;
    const begin = to > from ? from : 0, end = to > from ? to : answer.seconds;
    const height = answer.rows.length > 48 ? 7 : answer.rows.length > 16 ? 14 : 24;
    const {canvas, context, width} = canvasOf(plot, answer.rows.length * height + 26);
    const at = (us) => kLeft + (us / 1e6 - begin) / (end - begin) * (width - kLeft - 8);
    const muted = styleOf('--muted'), looks = new Map();
    areas = [];
    answer.rows.forEach((row, i) => {
      const top = i * height + 2, tall = height - (height > 10 ? 4 : 1);
      if (height >= 14 || i % 4 === 0) {
        context.fillStyle = muted;
        context.textAlign = 'right';
        context.fillText('rank ' + row.rank, kLeft - 8, top + tall / 2);
      }
      context.fillStyle = styleOf('--soft');
      context.fillRect(kLeft, top, width - kLeft - 8, tall);
      for (const [b, e, kind, name, micro] of row.spans) {
        const x0 = Math.max(kLeft, at(b)), x1 = Math.min(width - 8, at(e));
        if (x1 <= kLeft || x0 >= width - 8) continue;
        const kindName = answer.kinds[kind], text = answer.names[name];
        const [color, what] = lookOf(kindName, text);
        looks.set(what, color);
        const strip = kindName !== 'compute' && kindName !== 'wait';
        context.fillStyle = color;
        context.globalAlpha = kindName === 'wait' ? 0.55 : 1;
        const y = strip ? top + tall * 0.72 : top, h = strip ? tall * 0.28 : tall;
        context.fillRect(x0, y, Math.max(x1 - x0 - (x1 - x0 > 4 ? 0.6 : 0), 0.6), h);
        context.globalAlpha = 1;
        if (height >= 24 && !strip && micro >= 0 && x1 - x0 > 16 && kindName === 'compute') {
          context.fillStyle = '#ffffff';
          context.textAlign = 'center';
          context.fillText(micro, (x0 + x1) / 2, top + tall / 2 + 0.5);
        }
        areas.push({x0, x1: Math.max(x1, x0 + 1), y0: y, y1: y + h, strip,
                    text: `rank ${row.rank}${row.stage >= 0 ? `, stage ${row.stage}` : ''}: ${kindName === 'wait' ? 'waits: ' : ''}${text}` +
                        (micro >= 0 ? `, micro-batch ${micro}` : micro === -2 ? ' and others, too short to be seen' : '') + `\n${microseconds(e - b)}, from ${microseconds(b)} on`});
      }
    });
    context.fillStyle = muted;
    for (let i = 0; i <= 6; ++i) {
      context.textAlign = i === 0 ? 'left' : i === 6 ? 'right' : 'center';
      const seconds = begin + i / 6 * (end - begin);
      context.fillText(milliseconds(1000 * seconds), kLeft + i / 6 * (width - kLeft - 8), answer.rows.length * height + 14);
    }
    box.querySelector('.legend').replaceChildren(...[...looks].map(([what, color]) => {
      const item = make('span'), swatch = make('span', 'swatch');
      swatch.style.background = color;
      item.append(swatch, what);
      return item;
    }));
    canvas.dataset.spans = areas.length;
  }

  function drawSchedule() {
    const box = byId('schedule');
    box.hidden = !schedule || Boolean(schedule.problem) || schedule.measured.length === 0 && schedule.ideal.length === 0;
    if (box.hidden) return;
    const title = (what, bubble) => bubble === null ? what : `${what}: ${percent(bubble)} of the time is bubble`;
    box.querySelector('.measured-title').textContent = title(`Measured in step ${schedule.step.toLocaleString('en-US')}`, schedule.measured_bubble);
    box.querySelector('.ideal-title').textContent = title('Ideal, every action at its planned time', schedule.ideal_bubble);
    for (const which of ['measured', 'ideal']) {
      const plot = box.querySelector('.' + which), spans = schedule[which];
      plot.hidden = box.querySelector(`.${which}-title`).hidden = spans.length === 0;
      if (spans.length === 0) continue;
      const tall = schedule.rows.length > 16 ? 12 : 22;
      const {canvas, context, width} = canvasOf(plot, schedule.rows.length * tall + 4);
      const hits = [];
      schedule.rows.forEach((row, i) => {
        context.fillStyle = styleOf('--muted');
        context.textAlign = 'right';
        context.fillText('stage ' + row.stage, kLeft - 8, i * tall + tall / 2);
        context.fillStyle = styleOf('--soft');
        context.fillRect(kLeft, i * tall + 1, width - kLeft - 8, tall - 3);
      });
      for (const [row, name, begin, end, backward] of spans) {
        const x0 = kLeft + begin * (width - kLeft - 8), x1 = kLeft + end * (width - kLeft - 8);
        context.fillStyle = name.startsWith('W') ? '#1b9aaa' : backward ? '#2fa36b' : '#3b7ddd';
        context.fillRect(x0, row * tall + 1, Math.max(x1 - x0 - 0.8, 0.6), tall - 3);
        if (x1 - x0 > 18 && tall > 14) {
          context.fillStyle = '#ffffff';
          context.textAlign = 'center';
          context.fillText(name, (x0 + x1) / 2, row * tall + tall / 2);
        }
        hits.push({x0, x1, row, text: `stage ${schedule.rows[row].stage}: ${name}, ${percent(end - begin)} of the schedule` +
            (which === 'measured' ? `, ${milliseconds(1000 * schedule.seconds * (end - begin))}` : '')});
      }
      canvas.onmousemove = (event) => {
        const hit = hits.find((h) => event.offsetX >= h.x0 && event.offsetX < h.x1 && Math.floor(event.offsetY / tall) === h.row);
        tip(event, hit && hit.text);
      };
      canvas.onmouseleave = (event) => tip(event, '');
    }
  }

  function whole() { from = 0; to = -1; load().catch(() => {}); }

  function listen() {
    const canvas = section().querySelector('canvas');
    let held = null;
    const secondsAt = (x) => {
      const begin = to > from ? from : 0, end = to > from ? to : answer.seconds;
      return begin + (x - kLeft) / (canvas.clientWidth - kLeft - 8) * (end - begin);
    };
    const window_ = () => to > from ? [from, to] : [0, answer.seconds];
    canvas.addEventListener('wheel', (event) => {
      if (!answer || answer.problem) return;
      event.preventDefault();
      const center = secondsAt(event.offsetX), factor = Math.exp(event.deltaY * 0.0015), [begin, end] = window_();
      if (factor < 1 && end - begin < 2e-6) return;
      from = Math.max(0, center - (center - begin) * factor);
      to = Math.min(answer.seconds, center + (end - center) * factor);
      if (to - from >= answer.seconds * 0.9999) { from = 0; to = -1; }
      draw();
      loadSoon();
    }, {passive: false});
    canvas.addEventListener('pointerdown', (event) => { held = {x: event.offsetX, window: window_()}; canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener('pointerup', () => { held = null; });
    canvas.addEventListener('pointermove', (event) => {
      if (!answer || answer.problem) return;
      if (held && to > from) {
        const [begin, end] = held.window;
        const moved = Math.min(Math.max((held.x - event.offsetX) / (canvas.clientWidth - kLeft - 8) * (end - begin), -begin), answer.seconds - end);
        from = begin + moved;
        to = end + moved;
        draw();
        loadSoon();
        return;
      }
      const x = event.offsetX, y = event.offsetY;
      const inside = (a) => x >= a.x0 && x < a.x1 && y >= a.y0 && y < a.y1;
      const hit = areas.find((a) => a.strip && inside(a)) ?? areas.find(inside);
      tip(event, hit && hit.text);
    });
    canvas.addEventListener('pointerleave', (event) => tip(event, ''));
    canvas.addEventListener('dblclick', whole);
    section().querySelector('.reset').addEventListener('click', whole);
    section().querySelector('.step').addEventListener('change', (event) => { step = Number(event.target.value); whole(); });
    for (const input of ['.first', '.count']) section().querySelector(input).addEventListener('change', () => load().catch(() => {}));
  }
  listen();

  return {
    redraw() { draw(); drawSchedule(); },
    reset() { run = null; answer = null; schedule = null; from = 0; to = -1; step = -1; draw(); drawSchedule(); },
    async refresh(name) {
      run = name;
      await load();
      const got = await ask('schedule', {run: name});
      if (run !== name) return;
      schedule = got;
      drawSchedule();
    },
  };
})();
