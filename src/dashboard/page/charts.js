// Curves of several runs in one chart each, drawn by dygraphs. Its labels are numbers of ours, never text of files.
'use strict';

// Its legend would set an inline style, which the page's policy forbids; the page has one of its own.
Dygraph.PLUGINS = Dygraph.PLUGINS.filter((plugin) => plugin !== Dygraph.Plugins.Legend);

const curves = (() => {
  const kCharts = [
    {key: 'loss', title: 'Loss', extra: 'eval_loss'},
    {key: 'tokens_per_s', title: 'Tokens per second', format: (v) => count(v)},
    {key: 'mfu', title: 'MFU', format: (v) => percent(v)},
    {key: 'lr', title: 'Learning rate', plain: true},
    {key: 'grad_norm', title: 'Gradient norm'},
    {key: 'step_ms', title: 'Step time', format: (v) => milliseconds(v)},
    {key: 'staleness', title: 'Staleness of gradients', plain: true},
    {key: 'divergence', title: 'Divergence of replicas'},
    {key: 'compression_error', title: 'Compression error'},
  ];
  let runs = [];
  const made = new Map();

  // An exponential mean that begins without a bias; what is not known neither counts nor is shown.
  function smoothed(values, weight) {
    let mean = 0, share = 0;
    return values.map((value) => {
      if (value === null) return null;
      mean = weight * mean + (1 - weight) * value;
      share = weight * share + (1 - weight);
      return mean / share;
    });
  }

  // One table for dygraphs: a row for each x of any run. A curve without a value at x has null there and goes on; where
  // the value is not known it has NaN, which interrupts it.
  function tableOf(chart) {
    const series = [];
    for (const run of runs) {
      const curve = run.curves[chart.key], extra = chart.extra && run.curves[chart.extra];
      const color = colorOf(run.name);
      const smooth = view.smoothing > 0 && !chart.plain;
      if (curve) {
        series.push({run: run.name, curve, y: curve.y, color: smooth ? color + '48' : color, width: smooth ? 1 : 1.8, raw: true});
        if (smooth) series.push({run: run.name, curve, y: smoothed(curve.y, view.smoothing), color, width: 2});
      }
      if (extra) series.push({run: run.name, curve: extra, y: extra.y, color, width: 1, extra: true});
    }
    const rows = new Map();
    series.forEach((one, column) => {
      const xs = view.axis === 'time' ? one.curve.t.map((t) => t === null ? null : t / 3600) : one.curve.x;
      xs.forEach((x, i) => {
        if (x === null) return;
        if (!rows.has(x)) rows.set(x, new Array(series.length + 1).fill(null));
        const row = rows.get(x);
        row[0] = x;
        row[column + 1] = one.y[i] === null ? NaN : one.y[i];
      });
    });
    return {series, rows: [...rows.values()].sort((a, b) => a[0] - b[0])};
  }

  function valueText(chart, value) {
    return chart.format ? chart.format(value) : digits(value);
  }

  function draw(chart) {
    const {series, rows} = tableOf(chart);
    let card = made.get(chart.key);
    if (!card) {
      const box = make('section', 'card');
      box.dataset.chart = chart.key;
      const title = make('h3', '', chart.title);
      const value = make('span', 'value');
      title.append(value);
      const plot = make('div', 'chart');
      box.append(title, plot);
      byId('curves').append(box);
      card = {box, plot, value, graph: null, shape: ''};
      made.set(chart.key, card);
    }
    card.box.hidden = rows.length === 0;
    card.box.dataset.points = Math.max(0, ...series.map((one) => one.y.length));
    if (rows.length === 0) return;
    card.series = series;
    const options = {
      labels: ['x', ...series.map((_, i) => 's' + i)],
      colors: series.map((one) => one.color),
      series: Object.fromEntries(series.map((one, i) => ['s' + i, {
        strokeWidth: one.width, drawPoints: Boolean(one.extra) || one.y.length === 1, pointSize: one.extra ? 3 : 2,
        strokePattern: one.extra ? [3, 3] : null, highlightCircleSize: one.raw && view.smoothing > 0 ? 0 : 4,
      }])),
      connectSeparatedPoints: true, legend: 'never', logscale: view.log && !chart.plain,
      gridLineColor: styleOf('--grid'), axisLineColor: styleOf('--line'), gridLineWidth: 1,
      axes: {
        x: {axisLabelFormatter: (x) => view.axis === 'time' ? Number(x.toPrecision(3)) + ' h' : count(x), axisLabelWidth: 56, drawGrid: false},
        y: {axisLabelFormatter: (y) => valueText({...chart, format: chart.format ?? count}, Number(y.toPrecision(10))), axisLabelWidth: 54, pixelsPerLabel: 32},
      },
      dateWindow: view.zoom, rightGap: 8, xRangePad: 4, yRangePad: 6, animatedZooms: false,
      zoomCallback: (from, to, y) => { if (y && card.graph) zoomed(card.graph.isZoomed('x') ? [from, to] : null); },
      highlightCallback: (event, x, points) => {
        const parts = points.filter((p) => !card.series[Number(p.name.slice(1))].raw || view.smoothing === 0 || chart.plain)
            .map((p) => valueText(chart, p.yval));
        card.value.textContent = `${view.axis === 'time' ? x.toPrecision(3) + ' h' : 'step ' + x.toLocaleString('en-US')}: ${parts.join(', ')}`;
      },
      unhighlightCallback: () => { card.value.textContent = ''; },
    };
    const shape = JSON.stringify([series.map((one) => [one.run, one.width, one.extra]), document.documentElement.dataset.theme]);
    if (!card.graph || card.shape !== shape) {
      if (card.graph) card.graph.destroy();
      card.graph = new Dygraph(card.plot, rows, options);
      card.shape = shape;
    } else {
      card.graph.updateOptions({file: rows, ...options});
    }
  }

  // All charts show the same range; what was left out on the server is asked for.
  function zoomed(range) {
    if (JSON.stringify(range) === JSON.stringify(view.zoom)) return;
    view.zoom = range;
    refreshCurves(true).catch(() => {});
  }

  function redraw() { for (const chart of kCharts) draw(chart); }
  return {redraw, show(all) { runs = all; redraw(); }};
})();
