// The GPU that a thread uses: a new thread has the first one, whatever its rank has chosen.
#pragma once

namespace lockstep::cuda {

int gpu_in_use();       // by the calling thread
void use_gpu(int gpu);  // by the calling thread, from now on

}  // namespace lockstep::cuda
