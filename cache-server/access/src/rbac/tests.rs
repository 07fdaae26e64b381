mod cases;
mod naive;
