// The balance of a machine: operations of matrix products that it does in the time in which it moves one byte of main
// memory. Work of fewer operations per byte is bound by memory.
//
// The numbers stand for all machines of their kind: they weigh units against each other where a model is divided into
// stages, before anything runs, and have to be the same on all ranks. plan/calibration.h measures the machine itself.
#pragma once

namespace lockstep {

// Two threads of the cores of bench/results/2026-11-15-kernels.md do 350 GFLOP/s and copy 26 GB/s: 13.5; in bf16 13.3.
inline constexpr double kCpuBalance = 12;
// An H200 does 685 TFLOP/s in bf16 products and copies 4.24 TB/s (bench/results/2026-11-15-h200.md): 161.
inline constexpr double kGpuBalance = 160;

}  // namespace lockstep
