// How often to save: the expected cost of failures in closed form, and the interval that makes it least.
//
// Failures strike the run at rate λ per second, at exponential gaps. The run repeats segments: τ seconds of steps, then
// a save that stalls it for C seconds and is on disk W seconds later, while the next steps run. One save is written at
// a time, so a save waits for the one before it: saves are P = C + max(τ, W) apart. After a failure the run recovers
// for R seconds (detection, restart, load) and continues from the newest checkpoint that is on disk.
//
// The expected seconds from one checkpoint on disk to the next:
//
//   - A failure in recovery begins it anew, so recovery takes R' = (e^{λR} − 1)/λ. Where none can strike, R' = R.
//   - An attempt that needs L seconds without a failure, and recovers after each one, takes (1/λ + R')·(e^{λL} − 1).
//     After recovery L = τ + C + W: call this time A.
//   - Between two checkpoints of a run that was not interrupted L = P, since the write of one overlaps with the steps
//   of
//     the next. Within P there is a failure with probability 1 − e^{−λP}; it costs R' + A, and the time up to it or to
//     the end of P is (1 − e^{−λP})/λ on average:
//
//       E = (1 − e^{−λP})·(1/λ + R' + A) = (1/λ + R')·(1 − e^{−λP})·e^{λ(τ + C + W)}
//
//   With W ≤ τ that is (1/λ + R')·e^{λW}·(e^{λ(τ+C)} − 1), and with W = 0 the known (1/λ + R')·(e^{λ(τ+C)} − 1).
//
// Goodput is τ/E. While W ≤ τ, R and W only scale E, so the best τ solves 1 − λτ = e^{−λ(τ+C)}: neither the recovery
// nor the write changes it. Where that τ is below W, saves would wait for the disk: the best is then W, or 1/λ if that
// is less. Young's and Daly's formulas approximate the same solution for C much less than 1/λ.
#pragma once

namespace lockstep {

struct CheckpointCosts {
  double failures_per_second = 0;        // λ, of all devices together; 0: none
  double stall_seconds = 0;              // C
  double write_seconds = 0;              // W
  double recovery_seconds = 0;           // R
  bool failures_during_recovery = true;  // false: a recovery always succeeds
};

// E: the expected wall seconds per segment with this many seconds of steps, above 0.
double expected_segment_seconds(const CheckpointCosts& costs, double work_seconds);
// Useful seconds per wall second: τ/E.
double expected_goodput(const CheckpointCosts& costs, double work_seconds);

// Seconds of steps between saves that make goodput greatest: exactly, by Young (1974) as √(2CM), and by Daly (2006) as
// √(2CM)·(1 + √(C/2M)/3 + (C/2M)/9) − C, or M where C ≥ 2M. M = 1/λ. Infinite where nothing fails.
double best_work_seconds(const CheckpointCosts& costs);
double young_work_seconds(const CheckpointCosts& costs);
double daly_work_seconds(const CheckpointCosts& costs);

}  // namespace lockstep
