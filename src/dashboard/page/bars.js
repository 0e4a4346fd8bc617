// Bars over ranks: where the time of a step goes, and what memory is used for beside the plan.
'use strict';

// A canvas as wide as its box and sharp on every screen; sizes in CSS pixels.
function canvasOf(box, height) {
  const canvas = box.querySelector('canvas'), width = box.clientWidth, scale = devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.height = height + 'px';
  const context = canvas.getContext('2d');
  context.scale(scale, scale);
  context.font = '11px system-ui, "DejaVu Sans", sans-serif';
  context.textBaseline = 'middle';
  return {canvas, context, width, height};
}

const bars = (() => {
  const kUseColors = {
    compute: '#3b7ddd', wait_dp: '#e07b39', wait_pp: '#d1495b', wait_cp: '#d65f9e', wait_tp: '#c99a1b',
    optimizer: '#2fa36b', data: '#7d6bdb', save: '#8c6d5a', evaluate: '#1b9aaa', other: '#9aa7b8',
  };
  const kTagColors = ['#3b7ddd', '#e07b39', '#2fa36b', '#b05cc6', '#d1495b', '#1b9aaa', '#c99a1b', '#7d6bdb', '#8c6d5a', '#9aa7b8'];
  let times = null, memory = null;

  function legend(section, entries) {
    section.querySelector('.legend').replaceChildren(...entries.map(([color, text]) => {
      const item = make('span');
      const swatch = make('span', 'swatch');
      swatch.style.background = color;
      item.append(swatch, text);
      return item;
    }));
  }

  // Horizontal bars with labels for few rows, thin columns for many. A row is [{parts: [value], ghost}] of bars.
  function draw(box, rows, most, colorAt, text) {
    const few = rows.length <= 24;
    const lines = few ? Math.max(1, ...rows.map((row) => row.bars.length)) : 1;
    const height = few ? rows.length * (lines * 14 + 8) + 22 : 220;
    const {canvas, context, width} = canvasOf(box, height);
    const muted = styleOf('--muted'), line = styleOf('--line');
    const left = few ? 62 : 58, right = few ? 78 : 8;
    const length = (value) => value / most * (few ? width - left - right : height - 26);
    const areas = [];
    rows.forEach((row, i) => {
      if (few) {
        const top = 4 + i * (lines * 14 + 8);
        context.fillStyle = muted;
        context.textAlign = 'right';
        context.fillText(row.label, left - 8, top + lines * 7);
        row.bars.forEach((bar, k) => {
          let x = left;
          context.globalAlpha = bar.ghost ? 0.38 : 1;
          bar.parts.forEach((value, part) => {
            context.fillStyle = colorAt(part);
            const w = length(value);
            context.fillRect(x, top + k * 14, w, 12);
            if (w > 0.5) areas.push({x0: x, x1: x + w, y0: top + k * 14, y1: top + k * 14 + 13, row, bar, part});
            x += w;
          });
          context.globalAlpha = 1;
          context.fillStyle = muted;
          context.textAlign = 'left';
          context.fillText(bar.end, x + 6, top + k * 14 + 6.5);
        });
      } else {
        const step = (width - left - right) / rows.length, x = left + i * step;
        let y = height - 22;
        row.bars[0].parts.forEach((value, part) => {
          const h = length(value);
          context.fillStyle = colorAt(part);
          context.fillRect(x, y - h, Math.max(step * 0.98, 0.6), h);
          areas.push({x0: x, x1: x + step, y0: y - h, y1: y, row, bar: row.bars[0], part});
          y -= h;
        });
        const planned = row.bars[1];
        if (planned) {
          const top = height - 22 - length(planned.parts.reduce((a, b) => a + b, 0));
          context.fillStyle = styleOf('--text');
          context.fillRect(x, top - 1, Math.max(step, 1), 1.5);
        }
      }
    });
    if (!few) {
      context.strokeStyle = line;
      context.beginPath();
      context.moveTo(left, height - 22.5);
      context.lineTo(width - right, height - 22.5);
      context.stroke();
      context.fillStyle = muted;
      context.textAlign = 'right';
      for (const share of [0, 0.5, 1]) context.fillText(text(share * most), left - 6, Math.max(8, height - 22 - length(share * most)));
      const labels = 8;
      context.textAlign = 'center';
      for (let i = 0; i < labels; ++i) {
        const at = Math.floor(i * (rows.length - 1) / (labels - 1));
        context.fillText(rows[at].label, left + (at + 0.5) * (width - left - right) / rows.length, height - 9);
      }
    }
    canvas.onmousemove = (event) => {
      const x = event.offsetX, y = event.offsetY;
      const hit = areas.find((a) => x >= a.x0 && x < a.x1 && y >= a.y0 && y < a.y1);
      tip(event, hit && hit.row.tip(hit.bar, hit.part));
    };
    canvas.onmouseleave = (event) => tip(event, '');
  }

  function rankLabel(row) { return row.of > 1 ? `${row.rank} of ${row.of}` : 'rank ' + row.rank; }

  function drawTimes() {
    const section = byId('times'), note = section.querySelector('.note');
    const ranks = times ? times.ranks : [];
    section.querySelector('.history').hidden = section.querySelector('h4').hidden = !times || times.history.x.length < 2;
    section.querySelector('.plot').hidden = ranks.length === 0;
    if (ranks.length === 0 && (!times || times.history.x.length === 0)) {
      note.textContent = 'The run has no step records yet.';
      legend(section, []);
      return;
    }
    const used = times.uses.map((use, i) => i).filter((i) => ranks.some((r) => r.uses[i] > 0) || times.history.ms.some((ms) => ms[i] > 0));
    legend(section, used.map((i) => [kUseColors[times.uses[i]], times.uses[i].replace('_', ' ')]));
    if (ranks.length > 0) {
      const most = Math.max(...ranks.map((r) => r.ms));
      const [first, last] = ranks[0].steps;
      const of = times.slowest >= 0 ? ` Rank ${times.slowest} was busy longest in the last one.` : '';
      note.textContent = `Mean of steps ${first.toLocaleString('en-US')} to ${last.toLocaleString('en-US')}, by rank.${of}` +
          (ranks.some((r) => r.of > 1) ? ` Of every ${ranks[0].of} ranks the busiest is shown.` : '');
      draw(section.querySelector('.plot'), ranks.map((r) => ({
        label: ranks.length > 24 ? String(r.rank) : rankLabel(r),
        bars: [{parts: used.map((i) => r.uses[i]), end: milliseconds(r.ms)}],
        tip: (bar, part) => `rank ${r.rank}: ${times.uses[used[part]].replace('_', ' ')}\n${milliseconds(bar.parts[part])}, ${percent(bar.parts[part] / r.ms)} of ${milliseconds(r.ms)}`,
      })), most, (part) => kUseColors[times.uses[used[part]]], milliseconds);
    } else {
      note.textContent = '';
    }
    if (times.history.x.length > 1) drawHistory(section.querySelector('.history'), used);
  }

  // Means over ranks in the course of the run, stacked.
  function drawHistory(box, used) {
    const {x, ms} = times.history;
    const {canvas, context, width, height} = canvasOf(box, 130);
    const left = 62, right = 12, bottom = 20, totals = ms.map((all) => all.reduce((a, b) => a + b, 0));
    // One save must not flatten everything else: the scale ends at twice the median, or at the largest if that is less.
    const sorted = [...totals].sort((a, b) => a - b);
    const most = Math.min(sorted[sorted.length - 1], 2 * sorted[Math.floor(sorted.length / 2)]);
    const at = (i) => left + i / (x.length - 1) * (width - left - right);
    const up = (value) => height - bottom - Math.min(1, value / most) * (height - bottom - 6);
    let base = ms.map(() => 0);
    for (const use of used) {
      const top = base.map((value, i) => value + ms[i][use]);
      context.beginPath();
      top.forEach((value, i) => i === 0 ? context.moveTo(at(i), up(value)) : context.lineTo(at(i), up(value)));
      for (let i = x.length - 1; i >= 0; --i) context.lineTo(at(i), up(base[i]));
      context.fillStyle = kUseColors[times.uses[use]];
      context.fill();
      base = top;
    }
    context.fillStyle = styleOf('--muted');
    context.textAlign = 'right';
    for (const share of [0, 0.5, 1]) context.fillText(milliseconds(share * most), left - 6, Math.max(7, up(share * most)));
    context.textAlign = 'center';
    for (const i of [0, Math.floor((x.length - 1) / 2), x.length - 1]) context.fillText('step ' + count(x[i]), Math.min(Math.max(at(i), left + 20), width - 34), height - 8);
    canvas.onmousemove = (event) => {
      const i = Math.round((event.offsetX - left) / (width - left - right) * (x.length - 1));
      if (i < 0 || i >= x.length) return tip(event, '');
      tip(event, `up to step ${x[i].toLocaleString('en-US')}\n` + used.filter((u) => ms[i][u] > 0).map((u) => `${times.uses[u].replace('_', ' ')} ${milliseconds(ms[i][u])}`).join('\n'));
    };
    canvas.onmouseleave = (event) => tip(event, '');
  }

  function drawMemory() {
    const section = byId('memory'), note = section.querySelector('.note');
    const ranks = memory ? memory.ranks.filter((r) => r.peak || r.planned) : [];
    section.querySelector('.plot').hidden = ranks.length === 0;
    if (ranks.length === 0) {
      note.textContent = 'The run has recorded no memory yet.';
      legend(section, []);
      return;
    }
    const sum = (parts) => parts.reduce((a, b) => a + b, 0);
    const planned = ranks.some((r) => r.planned);
    note.textContent = 'The peak of each tag, by rank' + (planned ? '; the plan’s below it, pale.' : '; there is no plan to compare with.');
    if (planned && ranks.length > 24) note.textContent = 'The peak of each tag, by rank; the dark mark is the plan’s.';
    const colorAt = (part) => kTagColors[part % kTagColors.length];
    legend(section, memory.tags.map((tag, i) => [colorAt(i), tag]));
    const most = Math.max(...ranks.flatMap((r) => [r.peak ? sum(r.peak) : 0, r.planned ? sum(r.planned) : 0]), 1);
    draw(section.querySelector('.plot'), ranks.map((r) => {
      const shown = [];
      if (r.peak) shown.push({parts: r.peak, end: bytes(sum(r.peak)), what: 'peak'});
      if (r.planned) shown.push({parts: r.planned, end: bytes(sum(r.planned)), ghost: Boolean(r.peak), what: 'planned'});
      return {
        label: ranks.length > 24 ? String(r.rank) : rankLabel(r), bars: shown,
        tip: (bar, part) => `rank ${r.rank}: ${memory.tags[part]}, ${bar.what} ${bytes(bar.parts[part])}` +
            (r.now ? `\nnow ${bytes(r.now[part])}` : '') + (r.peak && r.planned ? `\npeak ${bytes(r.peak[part])}, planned ${bytes(r.planned[part])}` : '') +
            (r.planned_peak !== null ? `\nthe plan’s peak of all tags together: ${bytes(r.planned_peak)}` : ''),
      };
    }), most, colorAt, bytes);
  }

  return {
    redraw() { drawTimes(); drawMemory(); },
    showTimes(answer) { times = answer; drawTimes(); },
    showMemory(answer) { memory = answer; drawMemory(); },
  };
})();
